"""What a module returns, however it is nested: the one walk through it, and its names."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from artifacts.errors import InputError

_SINGLE = "output"


def name_leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what a module's return value holds, each with a name.

    A value alone is `output`. A key of a dictionary (or a field of a dataclass or named tuple) is
    the name, a place in a list or tuple is a number, and levels are joined by `_`:
    `{"boxes": [a, b]}` becomes `boxes_0`, `boxes_1`; `(a, b)` becomes `output_0`, `output_1`.

    Args:
        value: mappings, sequences, dataclasses and named tuples, or a single value.
        prefix: the name of what `value` was found in.
    """
    children = _children(value, is_nested=bool(prefix))
    if children is None:
        yield prefix or _SINGLE, value
        return
    for key, child in children:
        yield from name_leaves(child, f"{prefix}_{key}" if prefix else key)


def name_outputs(module: nn.Module, answer: Any) -> dict[str, Tensor]:
    """Returns what a module answered by name.

    The names are those of an export, see `name_leaves`; what is not a tensor is left out. A tensor
    or a plain tuple takes them from the module's `output_names` where it has as many.

    Raises:
        InputError: the module answered no tensor.
    """
    outputs = {name: leaf for name, leaf in name_leaves(answer) if isinstance(leaf, Tensor)}
    if not outputs:
        raise InputError(f"the network answers a {type(answer).__name__}", "tensors")
    names = list(getattr(module, "output_names", ()))
    is_plain = isinstance(answer, Tensor) or type(answer) in (tuple, list)
    if is_plain and len(names) == len(outputs):
        return dict(zip(names, outputs.values(), strict=True))
    return outputs


def _children(value: Any, *, is_nested: bool) -> list[tuple[str, Any]] | None:
    """Returns what a container holds; None for anything else."""
    if isinstance(value, Mapping):
        return [(str(key), child) for key, child in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return [(name, getattr(value, name)) for name in value.__dataclass_fields__]
    if isinstance(value, list | tuple):
        start = "" if is_nested else f"{_SINGLE}_"
        return [(f"{start}{index}", child) for index, child in enumerate(value)]
    return None
