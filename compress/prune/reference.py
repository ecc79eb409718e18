"""The original network with channels zeroed: what a pruned one must equal."""

from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from artifacts.module_copy import share_values
from compress.prune.analysis.families import Channels
from compress.prune.analysis.plain_operators import plain_operators
from compress.prune.analysis.reduction_rules import REDUCTIONS
from compress.prune.analysis.trace import Statistic
from compress.prune.answer import Answer, find_answer

_DIVISIONS = frozenset({"div", "div_", "reciprocal", "rsqrt"})
_OWN_OPERATORS = frozenset({"aten", "prim", "prims"})
_STATISTIC_NAMES = {
    "native_layer_norm": "LayerNorm",
    "native_group_norm": "GroupNorm",
    "_native_batch_norm_legit": "BatchNorm",
    "native_batch_norm": "BatchNorm",
    "linalg_vector_norm": "norm",
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "_weight_norm_interface": "weight_norm",
    "convolution": "convolution over channels",
}


Means = frozenset[tuple[str, int]]
"""Sums that code divides by how many values they have: operator and order, as in `Statistic`."""


def find_sums(channels: Channels, removed: set[int]) -> Means:
    """Returns the sums over channels of which some are in these groups."""
    found = _narrowed_statistics(channels, channels.mark_groups(removed))
    return frozenset((item.operator, item.order) for item in found if item.operator == "sum")


def run_zeroed(
    module: nn.Module,
    channels: Channels,
    removed: set[int],
    inputs: tuple[Tensor, ...],
    means: Means = frozenset(),
) -> Answer:
    """Runs the network at its full size, with every weight of some channel groups at zero.

    Where a normalization, a mean or a softmax computes over channels, the zeroed ones are left out
    of it, as there is no value of a channel that would not count. Where code divides by a value of
    a channel (`x / self.deviation`), a zeroed channel stays zero. Nothing else is changed.

    Args:
        module: the network that was traced; it is not changed.
        channels: its structure.
        removed: roots of the groups.
        inputs: the arguments.
        means: sums that are taken to be means where their number divides them: it is that of the
            channels that are kept then.

    Returns:
        its answer.
    """
    leaves = channels.mark_groups(removed)
    zeroed = share_values(module)
    tensors = dict((*zeroed.named_parameters(), *zeroed.named_buffers()))
    with torch.no_grad():
        for name, axes in channels.trace.weights.items():
            for axis, ids in axes.items():
                left = np.flatnonzero(leaves[ids])
                if left.size:
                    indices = torch.from_numpy(left)
                    tensors[name].data = tensors[name].index_fill(axis, indices, 0)
    statistics = {
        (item.operator, item.order): {
            axis: torch.from_numpy(np.flatnonzero(~leaves[ids])) for axis, ids in item.axes.items()
        }
        for item in _narrowed_statistics(channels, leaves)
    }
    answer = Answer([], [])
    for quotients in (nullcontext(), _ZeroQuotients()):
        foreign = _ForeignOperators()
        with plain_operators(), quotients, _MaskedStatistics(statistics, means), foreign:
            answer = find_answer(zeroed, inputs)
        if foreign.has_met_nan:
            answer = replace(answer, outputs=[_fill_with_nan(one) for one in answer.outputs])
        if all(bool(torch.isfinite(value).all()) for value in answer.outputs):
            break
    return answer


def _fill_with_nan(value: Tensor) -> Tensor:
    return torch.full_like(value, torch.nan, dtype=torch.float64)


def name_narrowed_statistics(channels: Channels, removed: set[int]) -> tuple[str, ...]:
    """Names the statistics from which `run_zeroed` leaves channels out, each once.

    Returns:
        operator and module, "mean in 'attention'".
    """
    found = _narrowed_statistics(channels, channels.mark_groups(removed))
    names: dict[str, None] = {}
    for item in found:
        kind = _STATISTIC_NAMES.get(item.operator, item.operator)
        place = item.modules[-1] if item.modules else "the network"
        names[f"{kind} in '{place}'"] = None
    return tuple(names)


def _narrowed_statistics(channels: Channels, leaves: NDArray[np.bool_]) -> list[Statistic]:
    return [
        item
        for item in channels.trace.statistics
        if any(leaves[ids].any() for ids in item.axes.values())
    ]


class _MaskedStatistics(TorchDispatchMode):
    """Runs chosen operators on the channels that are kept only."""

    def __init__(self, chosen: dict[tuple[str, int], dict[int, Tensor]], means: Means) -> None:
        super().__init__()
        self._chosen = chosen
        self._means = means
        self._counted = WeakTensorKeyDictionary()
        self._counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._overloadpacket.__name__
        self._counts[name] += 1
        kept = self._chosen.get((name, self._counts[name]))
        if kept is None:
            return func(*self._count_kept(name, args), **(kwargs or {}))
        x = args[0]
        narrow = x
        for axis, indices in kept.items():
            narrow = narrow.index_select(axis, indices)
        out = func(narrow, *_fitting(func, args, narrow, kept), **(kwargs or {}))
        results = list(out) if isinstance(out, tuple | list) else [out]
        if (name, self._counts[name]) in self._means:
            self._counted[out] = x.numel() // out.numel(), narrow.numel() // out.numel()
        if name not in REDUCTIONS and _keeps_axes(narrow, results[0], kept):
            sizes = enumerate(results[0].shape)
            full = x.new_zeros([x.shape[axis] if axis in kept else size for axis, size in sizes])
            full[_grid(full, kept)] = results[0]
            results[0] = full
        return tuple(results) if isinstance(out, tuple | list) else results[0]

    def _count_kept(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the arguments of a division of a sum by its number with that which is kept."""
        if name not in ("div", "div_") or args[0] not in self._counted:
            return args
        before, after = self._counted[args[0]]
        is_number = not isinstance(args[1], Tensor) and args[1] == before
        return (args[0], after, *args[2:]) if is_number else args


class _ForeignOperators(TorchDispatchMode):
    """Gives operators of other packages zeros for what is no number, and remembers that.

    With NaN among its offsets torchvision's deformable convolution reads memory that is not there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_met_nan = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace in _OWN_OPERATORS:
            return func(*args, **(kwargs or {}))
        args, named = tree_map_only(Tensor, self._replace, (args, kwargs or {}))
        return func(*args, **named)

    def _replace(self, value: Tensor) -> Tensor:
        is_nan = value.isnan()
        if not bool(is_nan.any()):
            return value
        self.has_met_nan = True
        return value.masked_fill(is_nan, 0)


class _ZeroQuotients(TorchDispatchMode):
    """Makes zero of what is divided by zero: a zeroed channel divided by a zeroed value."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._overloadpacket.__name__
        if name not in _DIVISIONS or not isinstance(args[-1], Tensor):
            return out
        is_zero = torch.zeros_like(out, dtype=torch.bool) | (args[-1] == 0)
        return out.masked_fill_(is_zero, 0)


def _fitting(
    func: Any, args: tuple[Any, ...], narrow: Tensor, kept: dict[int, Tensor]
) -> tuple[Any, ...]:
    """Returns the further arguments of an operator for the narrower input."""
    name = func._overloadpacket.__name__
    if name == "native_layer_norm":
        first = narrow.ndim - len(args[1])
        shape = list(narrow.shape[first:])
        return (shape, *(_narrow(value, kept, first) for value in args[2:4]), *args[4:])
    if name == "native_group_norm":
        weights = (_narrow(value, kept, 1) for value in args[1:3])
        return (*weights, args[3], narrow.shape[1], *args[5:])
    if name == "_weight_norm_interface":
        axis = args[2] if len(args) > 2 else 0
        scale = args[1].index_select(axis, kept[axis]) if axis in kept else args[1]
        return (scale, *args[2:])
    return args[1:]


def _keeps_axes(source: Tensor, out: Tensor, axes: Iterable[int]) -> bool:
    """Returns whether a result has its source's axes, and these of the same size."""
    return out.ndim == source.ndim and all(out.shape[axis] == source.shape[axis] for axis in axes)


def _narrow(value: Any, kept: dict[int, Tensor], first: int) -> Any:
    if not isinstance(value, Tensor):
        return value
    for axis, indices in kept.items():
        if axis >= first:
            value = value.index_select(axis - first, indices)
    return value


def _grid(x: Tensor, kept: dict[int, Tensor]) -> tuple[Any, ...]:
    """Returns indices that select the kept positions of several axes at once."""
    rows = [kept.get(axis, torch.arange(size)) for axis, size in enumerate(x.shape)]
    return tuple(torch.meshgrid(*rows, indexing="ij")) if rows else ()
