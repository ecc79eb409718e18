"""What onnxruntime says of a network that it cannot open or run, in one line."""

import re

from artifacts.errors import InputError

_AT_NODE = re.compile(r"running (\w+) node\. Name:'(.*?)' Status Message: (.*)$")
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_MOST = 240


def refusal(error: Exception) -> InputError:
    """Returns onnxruntime's error as one that the user can act on.

    Where it names a node, what follows is a position in onnxruntime's sources, the signature of a
    function and a condition that "was false"; the reason stands behind them.

    Args:
        error: what opening or running a session raised.
    """
    text = _CODE.sub("", " ".join(str(error).split()))
    at_node = _AT_NODE.search(text)
    if at_node is not None:
        operator, name, told = at_node.groups()
        text = f"{operator} '{name}': {told.rpartition(' was false. ')[2] or told}"
    return InputError(f"onnxruntime cannot run the network: {text[:_MOST]}")
