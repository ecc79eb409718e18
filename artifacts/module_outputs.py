"""The one walk through what a module returns, however it is nested."""

from collections.abc import Iterator, Mapping
from typing import Any

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
