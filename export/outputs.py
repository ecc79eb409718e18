"""Stable names for what a module returns, however it is nested."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError
from artifacts.module_outputs import name_leaves

if TYPE_CHECKING:
    from torch import Tensor


def flatten_outputs(value: Any, order: Sequence[str] = ()) -> "list[tuple[str, Tensor]]":
    """Lists the tensors in a module's return value, each with a name.

    The names are those of `name_leaves`; what is not a tensor is left out.

    Args:
        value: a tensor, or mappings, sequences, dataclasses and named tuples that hold tensors.
        order: names in the order wanted, if it names exactly the tensors found.

    Returns:
        pairs of name and tensor, in the order of the return value or of `order`.

    Raises:
        InputError: there is no tensor in it, or two would share a name.
    """
    import torch

    named = [(name, leaf) for name, leaf in name_leaves(value) if isinstance(leaf, torch.Tensor)]
    names = [name for name, _ in named]
    if not named:
        raise InputError(f"the module returns no tensor but a {type(value).__name__}", "tensors")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two outputs of the module would be named '{name}'", "unique names")
    if sorted(order) == sorted(names):
        named.sort(key=lambda pair: list(order).index(pair[0]))
    return named
