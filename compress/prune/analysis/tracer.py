"""Follows channels through a network while it runs, operator by operator.

Every tensor carries, per axis, a vector of channel ids: position i of that axis exists because of
channel `ids[i]`. Weights start with fresh ids on every axis. Operators hand ids on, tie them (an
addition needs the same channels on both sides) or freeze them (an output's channels must stay).
A tensor is rectangular, so a channel is always a whole slab across one axis.

The walk sees the operators that PyTorch really dispatches (ATen), after every composite one has
been taken apart: about seventy kinds, whatever Python code the network is made of.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from compress.prune.analysis.channel_sets import Ids
from compress.prune.analysis.layer_names import name_in_layer
from compress.prune.analysis.trace import AxisIds, Site, Slice, Split, Statistic, Trace
from compress.prune.analysis.value_sources import ValueSources

_RECENT = 64
NETWORK = "the network"
"""What the outermost module is called in a message."""
HEAD_NAMES = (
    *("num_heads", "n_heads", "nhead", "heads", "num_attention_heads"),
    *("num_head", "n_head", "nheads", "nh", "h"),
    *("num_kv_heads", "n_kv_heads", "num_key_value_heads", "kv_heads", "n_kv_head"),
)
CONSTANTS = (
    *("zeros", "ones", "full", "empty"),
    *("new_zeros", "new_ones", "new_full", "new_empty"),
)
"""They make a tensor of one value, so that any of its positions may leave."""
SPREADERS = ("expand", "repeat")
"""They may make several equal channels of a single one, any of which may leave."""


VIEWS = ("view", "_unsafe_view", "reshape", "_reshape_alias")
MOVERS = (
    *(*VIEWS, "permute", "transpose", "movedim", "clone", "contiguous", "alias", "detach"),
    *("squeeze", "unsqueeze", "select", "unbind"),
)
"""They hand on channels that lie along several axes at once, as a shuffle has them in between."""


@dataclass(frozen=True)
class Call:
    """One operator as it was dispatched: `name` without its namespace, arguments, result."""

    func: Any
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    out: Any

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments."""
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Tensor)]

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors among the results."""
        return [leaf for leaf in tree_leaves(self.out) if isinstance(leaf, Tensor)]


class ChannelTracer(TorchDispatchMode):
    """Attaches channel ids to every tensor of a run.

    Args:
        module: the network.
        inputs: its arguments.
        rules: what each operator does to ids, by name; `None` as key: for unknown operators.
        turned: places and orders of the splits where channels leave along the second longest axis.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: tuple[Tensor, ...],
        rules: Mapping[str, Callable[["ChannelTracer", Call], None]],
        turned: frozenset[tuple[str, int]] = frozenset(),
    ) -> None:
        super().__init__()
        self.trace = Trace()
        self._turned = turned
        self.stack: list[str] = []
        self._counts: Counter[str] = Counter()
        self._rules = rules
        self._ids = WeakTensorKeyDictionary()
        self.weight_names = WeakTensorKeyDictionary()
        self._spread = WeakTensorKeyDictionary()
        self.bins: list[Ids] = []
        self.own: list[Ids] = []
        self.slices: list[Slice] = []
        self.trace.parameters.update(name for name, _ in module.named_parameters())
        self._modules_by_name = dict(module.named_modules())
        weights = (*module.named_parameters(), *module.named_buffers())
        self.sources = ValueSources(weights, inputs)
        for name, tensor in weights:
            owner = self._modules_by_name[name_in_layer(name).rpartition(".")[0]]
            known = 2 if isinstance(owner, nn.modules.conv._ConvNd) else tensor.ndim
            axes = {
                axis: self.trace.sets.add_ids(size)
                for axis, size in enumerate(tensor.shape[:known])
            }
            self.trace.weights[name] = axes
            self._ids[tensor] = axes
            self.weight_names[tensor] = name

    def ids(self, tensor: Tensor) -> AxisIds:
        """Returns the channel ids of a tensor's axes; axes without channels are left out."""
        found: AxisIds = self._ids.get(tensor, {})
        return found

    def set_ids(self, tensor: Tensor, axes: AxisIds) -> None:
        """Attaches ids to a tensor; the only channel of an axis can never leave."""
        kept = {}
        for axis, ids in axes.items():
            if ids.size > 1:
                kept[axis] = ids
            else:
                self.trace.sets.freeze(ids, "the only channel of its tensor")
        self._ids[tensor] = kept

    def spread_ids(self, tensor: Tensor) -> dict[int, Tensor]:
        """Returns where the channels of an axis really lie that others share with it.

        Each is an integer tensor of the whole shape; `ids` of that axis name one of each slab.
        """
        found: dict[int, Tensor] = self._spread.get(tensor, {})
        return found

    def set_spread(self, tensor: Tensor, axis: int, positions: Tensor) -> None:
        """Remembers where the channels of an axis lie until an operator needs whole slabs."""
        self._spread[tensor] = self.spread_ids(tensor) | {axis: positions}

    def tie_slabs(self, positions: Tensor, axis: int, *, is_count: bool) -> Ids:
        """Ties all ids of each slab across `axis` and returns one id per slab."""
        compact = positions
        for other in range(positions.ndim):
            if other != axis and not varies(positions, other):
                compact = compact.narrow(other, 0, 1)
        table = compact.movedim(axis, 0).reshape(compact.shape[axis], -1).numpy()
        ids = np.ascontiguousarray(table[:, 0])
        if table.shape[1] > 1:
            reason = f"joined in '{self.place}' with values that stay"
            self.trace.sets.tie(table[:, 1:], ids[:, None], reason, is_count=is_count)
        return ids

    def freeze(self, tensor: Tensor, reason: str, axes: tuple[int, ...] | None = None) -> None:
        """Keeps all channels of a tensor (of these axes only, where given)."""
        for axis, ids in self.ids(tensor).items():
            if axes is None or axis in axes:
                self.trace.sets.freeze(ids, reason)

    def add_own_ids(self, call: Call, axis: int) -> Ids:
        """Returns channels for an axis of equal values; code that names its size may follow."""
        ids = self.trace.sets.add_ids(call.out.shape[axis])
        self.own.append(ids)
        self.note_site(call, ids, axis)
        return ids

    def is_own(self, ids: Ids) -> bool:
        """Returns whether these are channels of equal values, and of no weight."""
        return any(np.isin(ids, own).all() for own in self.own)

    def keep_bins(self, ids: Ids) -> None:
        """Keeps those of a layer's inputs that are bins of a softmax: each has a fixed meaning.

        A detection head takes the mean of a distance over such bins (Li et al., 2020, "Generalized
        Focal Loss"), and its loss counts them.
        """
        bins = ids[np.isin(ids, np.concatenate([np.empty(0, np.int64), *self.bins]))]
        self.trace.sets.freeze(bins, f"bins of a softmax that '{self.place}' weighs")

    def note_site(self, call: Call, ids: Ids, axis: int = 0) -> None:
        """Remembers that the code may name the size of this axis."""
        same = sum(site.modules == tuple(self.stack) for site in self.trace.sites[-_RECENT:])
        self.trace.sites.append(Site(tuple(self.stack), call.name, same, ids, axis))

    def note_split(self, ids: Ids, place: str | None = None, *, is_cut: bool = False) -> bool:
        """Remembers a view of one axis as several, or slices of it; returns whether it is turned.

        Args:
            ids: the channels.
            place: name of the module; None for the innermost that is running.
            is_cut: whether it is slices of several sizes.
        """
        place = self.innermost if place is None else place
        order = sum(split.place == place for split in self.trace.splits)
        kind = type(self._modules_by_name[place])
        self.trace.splits.append(Split(place, kind, order, ids, is_cut))
        return (place, order) in self._turned

    def note_inputs(self, args: tuple[Any, ...]) -> None:
        """Remembers that the running module may read the sizes of what it is given."""
        for tensor in args:
            if isinstance(tensor, Tensor):
                self.trace.inputs += [
                    Site(tuple(self.stack), "input", 0, ids) for ids in self.ids(tensor).values()
                ]

    def note_statistic(self, call: Call, axes: AxisIds) -> None:
        """Remembers that an operator computes over these channels."""
        if axes:
            order = self._counts[call.name]
            self.trace.statistics.append(Statistic(call.name, order, axes, tuple(self.stack)))

    def head_counts(self) -> set[int]:
        """Returns what the running modules call their number of attention heads."""
        modules = [self._modules_by_name[name] for name in ("", *self.stack)]
        settings = [one for part in modules for one in vars(part).values() if type(one) is dict]
        values = [getattr(part, name, None) for part in modules for name in HEAD_NAMES]
        values += [one.get(name) for one in settings for name in HEAD_NAMES]
        return {value for value in values if type(value) is int}

    def is_running(self, kind: type[nn.Module]) -> bool:
        """Returns whether the innermost running module is of a class."""
        return isinstance(self._modules_by_name[self.innermost], kind)

    @property
    def innermost(self) -> str:
        """The innermost running module's name; "" is the network itself."""
        return self.stack[-1] if self.stack else ""

    @property
    def place(self) -> str:
        """What the innermost running module is called in a message."""
        return self.innermost or NETWORK

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._overloadpacket.__name__
        self._counts[name] += 1
        call = Call(func, name, args, kwargs or {}, out)
        self.sources.note(call.tensors, call.outputs)
        self.trace.used.update(
            self.weight_names[tensor] for tensor in call.tensors if tensor in self.weight_names
        )
        if name not in MOVERS:
            for tensor in call.tensors:
                self.tie_spread(tensor)
        if name in (*CONSTANTS, *SPREADERS) or any(self.ids(tensor) for tensor in call.tensors):
            rule = self._rules.get(name)
            if rule is None and torch.Tag.pointwise in func.tags:
                rule = self._rules["pointwise"]
            (rule or self._rules["unknown"])(self, call)
        return out

    def tie_spread(self, tensor: Tensor) -> None:
        """Ties whole slabs of what an operator takes in that does more than to move values."""
        for axis, positions in self.spread_ids(tensor).items():
            self.tie_slabs(positions, axis, is_count=False)
        self._spread.pop(tensor, None)


def varies(positions: Tensor, axis: int) -> bool:
    """Returns whether ids differ along an axis."""
    if positions.shape[axis] < 2 or positions.stride(axis) == 0:
        return False
    return not bool((positions == positions.narrow(axis, 0, 1)).all())


def expand_ids(ids: Ids, axis: int, shape: tuple[int, ...]) -> Tensor:
    """Returns the ids of one axis as an integer tensor of the whole shape, without a copy."""
    wide = [1] * len(shape)
    wide[axis] = ids.size
    return torch.from_numpy(np.ascontiguousarray(ids)).reshape(wide).expand(shape)
