"""What an export says of inputs that may be bytes, as pictures are that a network scales itself."""

import json
from collections.abc import Mapping

BYTE_INPUTS_KEY = "framefit.byte_inputs"
"""An export's metadata: the inputs that its module takes as bytes, as a list in JSON."""


def read_byte_inputs(metadata: Mapping[str, str]) -> frozenset[str]:
    """Returns the inputs that may be bytes, as a file says that was exported from a module."""
    try:
        names = json.loads(metadata.get(BYTE_INPUTS_KEY, "[]"))
    except ValueError:
        return frozenset()
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()
