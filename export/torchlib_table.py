"""torch's table of what its operators are in ONNX, made once in a process and not for each export.

torch parses the source of 500 functions for it, which takes longer than all else about a small
network; pruning to a latency exports one for each of up to a dozen trials.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import cache
from typing import Any


@contextmanager
def table_made_once() -> Iterator[None]:
    """Exports inside take copies of one table; with a torch that makes it otherwise, their own.

    torch offers no way to hand it over, so the method that makes it is replaced meanwhile.
    """
    table = _table_class()
    if table is None:
        yield
        return
    own = vars(table)["from_torchlib"]
    table.from_torchlib = _copies_of_one(table)
    try:
        yield
    finally:
        table.from_torchlib = own


def _table_class() -> Any:
    """Returns it where it is as in torch 2.15; else None."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:
        return None
    is_known = "from_torchlib" in vars(ONNXRegistry) and hasattr(ONNXRegistry(), "functions")
    return ONNXRegistry if is_known else None


@cache
def _copies_of_one(table: Any) -> staticmethod:
    make = cache(table.from_torchlib)

    def from_torchlib(**options: Any) -> Any:
        found = copy(make(**options))
        found.functions = {target: list(forms) for target, forms in found.functions.items()}
        return found

    return staticmethod(from_torchlib)
