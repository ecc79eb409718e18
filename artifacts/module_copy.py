"""Copies networks, those that keep computed weights between forward passes too."""

import copyreg
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from types import CellType, FunctionType, NoneType
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

Module = TypeVar("Module", bound=nn.Module)
_ATOMS = frozenset({NoneType, bool, int, float, str, FunctionType})
"""They are the same in a copy, and hold no tensors."""
_CONTAINERS = frozenset({dict, OrderedDict, list, set})
"""What modules keep empty ones of, most of them for hooks."""


def copy_module(module: Module, shared: Iterable[nn.Module] = ()) -> Module:
    """Returns a network of its own; modules in `shared` stay the same objects in the copy.

    `torch.nn.utils.weight_norm` and `spectral_norm` leave the weight that a forward pass computed
    on the module, with its gradient's graph, which `deepcopy` refuses; it is copied off the graph.
    So are features that a network keeps in a list or dictionary.
    """
    kept = list(shared)
    parts = [part for _, part in module.named_modules(memo=set(kept))]
    return _copy(module, parts, {id(one): one for one in kept})


def _copy(module: Module, parts: Sequence[nn.Module], memo: dict[int, Any]) -> Module:
    """Copies a network as `deepcopy` does, and several times faster.

    Of a module without copying rules of its own the attributes are copied one by one: most of them
    are numbers and empty dictionaries of hooks.

    Args:
        module: the network.
        parts: its modules that are copied, itself among them.
        memo: what takes the place of which object, by identity.
    """
    memo |= {
        id(value): value.detach().clone()
        for value in _list_kept(parts)
        if isinstance(value, Tensor) and not value.is_leaf
    }
    kinds = {kind: _is_plain(kind) for kind in set(map(type, parts))}
    copies = [(part, type(part).__new__(type(part))) for part in parts if kinds[type(part)]]
    memo |= {id(part): copy for part, copy in copies}
    for part, copy in reversed(copies):
        state = part.__getstate__()
        copy.__setstate__({name: _copy_attribute(value, memo) for name, value in state.items()})
    whole = deepcopy(module, memo)
    for part in whole.modules():
        for hooks in (part._forward_hooks, part._forward_pre_hooks):
            hooks.update({key: _rebound(hook, memo) for key, hook in hooks.items()})
    return whole


def _list_kept(parts: Sequence[nn.Module]) -> Iterator[Any]:
    """Yields what modules keep beside their parameters and parts, in lists and dictionaries too."""
    for part in parts:
        for name, value in vars(part).items():
            is_known = name in ("_parameters", "_modules")
            if not (is_known or type(value) in _ATOMS or _is_empty(value)):
                yield from tree_leaves(value)


def _is_plain(kind: type[nn.Module]) -> bool:
    """Whether modules of a class are copied by their attributes: it has no rules of its own."""
    has_slots = any(vars(base).get("__slots__") for base in kind.__mro__)
    has_arguments = hasattr(kind, "__getnewargs__") or hasattr(kind, "__getnewargs_ex__")
    has_rules = hasattr(kind, "__deepcopy__") or kind in copyreg.dispatch_table
    reductions = ("__reduce_ex__", "__reduce__", "__getstate__")
    has_rules |= any(getattr(kind, name) is not getattr(nn.Module, name) for name in reductions)
    return not (has_slots or has_arguments or has_rules)


def _copy_attribute(value: Any, memo: dict[int, Any]) -> Any:
    """Returns a copy as `deepcopy` makes it: of what is empty at once, of dictionaries by value."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    is_by_value = kind in (dict, OrderedDict) and _ATOMS.issuperset(map(type, value))
    if id(value) in memo or not (is_by_value or _is_empty(value)):
        return deepcopy(value, memo)
    copy = memo[id(value)] = kind()
    if value:
        copy.update({key: _copy_attribute(item, memo) for key, item in value.items()})
    return copy


def _is_empty(value: Any) -> bool:
    return type(value) in _CONTAINERS and not value


def share_values(module: Module) -> Module:
    """Returns a copy whose parameters have their values in common with the network's.

    It costs neither the memory nor the time of its weights. A parameter may be given other values
    (`parameter.data = ...`); whoever writes into them writes into the network's too. Buffers, which
    a forward pass may write, are the copy's own.
    """
    memo: dict[int, Any] = {
        id(one): nn.Parameter(one.detach(), one.requires_grad)
        for one in module.parameters()
        if type(one) is nn.Parameter
    }
    return _copy(module, list(module.modules()), memo)


def leave_inference(module: Module) -> Module:
    """Returns the network, or a copy where it was made in inference mode.

    Of tensors that are made in that mode autograd takes no gradients.
    """
    values = (*module.parameters(), *module.buffers())
    return copy_module(module) if any(value.is_inference() for value in values) else module


def _rebound(hook: Any, memo: dict[int, Any]) -> Any:
    """Returns a hook for the copy: a function that closes over the network closes over its copy.

    `deepcopy` leaves functions as they are, so their hooks would read and write the original. What
    they share with the network (a list of features) is the copy's too.
    """
    if not isinstance(hook, FunctionType):
        return hook
    cells = tuple(_copy_cell(cell, memo) for cell in hook.__closure__ or ())
    defaults = tuple(memo.get(id(value), value) for value in hook.__defaults__ or ())
    again = FunctionType(hook.__code__, hook.__globals__, hook.__name__, defaults, cells)
    again.__kwdefaults__ = hook.__kwdefaults__
    return again


def _copy_cell(cell: CellType, memo: dict[int, Any]) -> CellType:
    """Returns a cell with the copy of its value; what the network does not have stays."""
    try:
        value = cell.cell_contents
    except ValueError:
        return cell
    return CellType(memo.get(id(value), value))
