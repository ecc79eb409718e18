"""Stable names for what a module returns, however it is nested."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

_SINGLE = "output"


def flatten_outputs(value: Any, order: Sequence[str] = ()) -> "list[tuple[str, Tensor]]":
    """Lists the tensors in a module's return value, each with a name.

    A tensor alone is `output`. A key of a dictionary (or a field of a dataclass or named tuple) is
    the name, a place in a list or tuple is a number, and levels are joined by `_`:
    `{"boxes": [a, b]}` becomes `boxes_0`, `boxes_1`; `(a, b)` becomes `output_0`, `output_1`.
    What is not a tensor is left out.

    Args:
        value: a tensor, or mappings, sequences, dataclasses and named tuples that hold tensors.
        order: names in the order wanted, if it names exactly the tensors found.

    Returns:
        pairs of name and tensor, in the order of the return value or of `order`.

    Raises:
        InputError: there is no tensor in it, or two would share a name.
    """
    named = list(_walk(value, ""))
    names = [name for name, _ in named]
    if not named:
        raise InputError(f"the module returns no tensor but a {type(value).__name__}", "tensors")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two outputs of the module would be named '{name}'", "unique names")
    if sorted(order) == sorted(names):
        named.sort(key=lambda pair: list(order).index(pair[0]))
    return named


def _walk(value: Any, prefix: str) -> "list[tuple[str, Tensor]]":
    import torch

    if isinstance(value, torch.Tensor):
        return [(prefix or _SINGLE, value)]
    found = []
    for key, child in _children(value, bool(prefix)):
        found += _walk(child, f"{prefix}_{key}" if prefix else key)
    return found


def _children(value: Any, is_nested: bool) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(str(key), child) for key, child in value.items()]
    if hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if hasattr(value, "__dataclass_fields__"):
        return [(name, getattr(value, name)) for name in value.__dataclass_fields__]
    if isinstance(value, list | tuple):
        start = "" if is_nested else f"{_SINGLE}_"
        return [(f"{start}{index}", child) for index, child in enumerate(value)]
    return []
