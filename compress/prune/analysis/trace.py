"""What following the channels of a network finds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from compress.prune.analysis.channel_sets import ChannelSets, Ids

AxisIds = dict[int, Ids]
"""Channel ids per axis."""


@dataclass(frozen=True)
class Site:
    """A place where the network's code names or assumes the size of a channel axis.

    Attributes:
        modules: names of the modules that were running, outermost first.
        operator: what was called.
        order: which such operator of the innermost module it is.
        ids: the channels along the axis whose size is named.
        axis: that axis of its result; 0 where it can be only one.
    """

    modules: tuple[str, ...]
    operator: str
    order: int
    ids: Ids
    axis: int = 0

    @property
    def place(self) -> str:
        """The innermost module's name; "" is the network itself."""
        return self.modules[-1] if self.modules else ""


@dataclass(frozen=True)
class Split:
    """A view of one channel axis as several, along any of which channels might leave.

    Or slices of it, of several sizes that all divide it.

    Attributes:
        place: name of the innermost module that was running.
        kind: its class.
        order: the how-manieth such view of that module it is.
        ids: the channels.
        is_cut: whether it is slices; turned, all are of parts as large as the smallest.
    """

    place: str
    kind: type[nn.Module]
    order: int
    ids: Ids
    is_cut: bool = False


@dataclass(frozen=True)
class Slice:
    """A slice of channels.

    Attributes:
        place: name of the innermost module that was running.
        ids: all channels of the axis.
        start, size: where it begins, and how many it takes.
    """

    place: str
    ids: Ids
    start: int
    size: int

    @property
    def part(self) -> Ids:
        """The channels that it takes."""
        return self.ids[self.start : self.start + self.size]

    @property
    def is_even(self) -> bool:
        """Whether the axis may be parts of this size, of which it takes one."""
        return self.size > 1 and not self.ids.size % self.size and not self.start % self.size


@dataclass(frozen=True)
class Statistic:
    """An operator that computes over a channel axis, so that its result depends on their number.

    Attributes:
        operator, order: which it is: the operator's name, and the how-manieth of that name in a run
            (other operators come and go with a tensor's memory layout).
        axes: channels per axis of its input that it computes over.
        modules: names of the modules that were running.
    """

    operator: str
    order: int
    axes: AxisIds
    modules: tuple[str, ...]


@dataclass(frozen=True)
class LayerUse:
    """One convolution or matrix product with a weight, as it was met.

    Attributes:
        module: name of the innermost module.
        weight: name of the weight.
        kind: "conv", "conv_transpose" or "linear".
        input_shape, output_shape: of the activations.
        weight_shape: of the weight.
        settings: stride, padding, dilation and groups of a convolution.
        inputs, outputs: channel ids of the activations.
        positions: how many times each weight is used in one inference.
        is_constant: whether its result is the same for every input (the biases of relative
            positions, a decoder's queries).
    """

    module: str
    weight: str
    kind: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    settings: dict[str, Any]
    inputs: Ids
    outputs: Ids
    positions: int
    is_constant: bool = False

    @property
    def loses_whole_groups(self) -> bool:
        """Whether whole groups of a convolution leave, see `lose_whole_groups`."""
        groups = self.settings.get("groups", 1)
        return lose_whole_groups(groups, self.inputs.size, self.weight_shape)


def lose_whole_groups(groups: int, inputs: int, weight_shape: Sequence[int]) -> bool:
    """Returns whether a convolution loses whole groups, and not the same places of every group.

    It does where there are at least as many groups as channels in one (a depthwise convolution is
    the extreme case).

    Args:
        groups: how many it has.
        inputs: its input channels.
        weight_shape: of its weight.
    """
    most = max(inputs // groups, weight_shape[0] // groups, weight_shape[1])
    return 1 < groups >= most


@dataclass(frozen=True)
class Branch:
    """A run on another sample, which used other weights than the first.

    Attributes:
        inputs: the sample.
        trace: what was found; ids of weights are those of the first run, others are not.
    """

    inputs: tuple[Tensor, ...]
    trace: "Trace"


@dataclass
class Trace:
    """What following the channels of a network found.

    Attributes:
        sets: the ties and freezes.
        weights: ids per axis of each parameter and buffer, by name.
        parameters: names of those that are parameters.
        used: names of those that an operator took in.
        unneeded: names of weights that no output of the network is computed from.
        sites, statistics, layers: see their classes.
        splits: views of one axis as several, where nothing tells along which channels leave.
        inputs: channels of what each module is given, whose number its code may read.
        whole_groups: convolutions and GroupNorms from which whole groups leave, by module.
        cuts: channels of the parts, and of the whole, where code cuts an axis into unequal parts.
        branches: runs that used other weights.
        used_in_training: names of those parameters that a run in training mode used.
    """

    sets: ChannelSets = field(default_factory=ChannelSets)
    weights: dict[str, AxisIds] = field(default_factory=dict)
    parameters: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    unneeded: set[str] = field(default_factory=set)
    sites: list[Site] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    inputs: list[Site] = field(default_factory=list)
    statistics: list[Statistic] = field(default_factory=list)
    layers: list[LayerUse] = field(default_factory=list)
    whole_groups: set[str] = field(default_factory=set)
    cuts: list[Ids] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    used_in_training: set[str] = field(default_factory=set)

    @property
    def used_somewhere(self) -> set[str]:
        """Names of the weights that an operator took in: on any sample, or in training mode."""
        others = (branch.trace.used for branch in self.branches)
        return self.used.union(self.used_in_training, *others)

    @property
    def needed_layers(self) -> list[LayerUse]:
        """The layers that each inference has to compute.

        An export leaves out those that no output is computed from, and a runtime computes those
        once whose result is always the same.
        """
        return [
            layer
            for layer in self.layers
            if layer.weight not in self.unneeded and not layer.is_constant
        ]
