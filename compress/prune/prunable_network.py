"""A network whose channel groups are known, and its copies without some of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor, nn

from artifacts.edits import apply_edits
from artifacts.errors import InputError
from artifacts.module_copy import copy_module, share_values
from compress.prune.analysis.branch_ids import view_branch
from compress.prune.analysis.channel_sets import Ids
from compress.prune.analysis.families import Channels, Family
from compress.prune.answer import Answer, find_answer
from compress.prune.computed_scales import Scale, find_scales, name_changed_scale
from compress.prune.difference import largest_difference
from compress.prune.reference import Means, find_sums, name_narrowed_statistics, run_zeroed
from compress.prune.rescaling import Rescaling, propose_rescalings, rescale
from compress.prune.surgery import Adjustments, Edits, make_edits
from compress.prune.usable_weights import explain_nan

TOLERANCE = 1e-9
"""Largest difference from the zeroed original in float64, relative to the largest output."""
_RUNS = 3
_MOST_KEPT = 3


@dataclass(frozen=True)
class _Zeroed:
    """What the original answers without some groups of a structure, on each sample."""

    roots: Ids
    removed: frozenset[int]
    means: Means
    answers: list[Answer]


@dataclass
class _Memory:
    """What the original computes; trials of one network have it in common.

    Attributes:
        zeroed: without some groups, the last few.
        scales: by which plain numbers it scales; None until that is asked for.
        wide: the network in float64; None until that is asked for.
    """

    zeroed: list[_Zeroed] = field(default_factory=list)
    scales: list[Scale] | None = None
    wide: nn.Module | None = None


@dataclass(frozen=True)
class PrunableNetwork:
    """A network whose channel groups are known and proven removable.

    Attributes:
        module: the network.
        inputs: arguments in float64 with which it is proven.
        channels: its structure.
        adjustments: attributes that have to follow a channel count.
        rescalings: values that make up for scales which the code computes from one.
        scale_inputs: arguments with which these scales are looked at; None for `inputs`.
        means: sums over channels that the code divides by their number, as a mean does.
    """

    module: nn.Module
    inputs: tuple[Tensor, ...]
    channels: Channels
    adjustments: Adjustments
    rescalings: tuple[Rescaling, ...] = ()
    scale_inputs: tuple[Tensor, ...] | None = None
    means: Means = frozenset()
    _memory: _Memory = field(default_factory=_Memory, repr=False, compare=False)

    def with_inputs(self, inputs: tuple[Tensor, ...]) -> "PrunableNetwork":
        """Returns the same network, proven with other arguments.

        What makes up for scales stays as it is with those before.
        """
        memory = _Memory(scales=self._memory.scales, wide=self.wide)
        return replace(self, inputs=inputs, scale_inputs=self._scaling, _memory=memory)

    @property
    def _scaling(self) -> tuple[Tensor, ...]:
        """The arguments with which scales are looked at."""
        return self.inputs if self.scale_inputs is None else self.scale_inputs

    def make_edits(self, removed: set[int]) -> Edits:
        """Returns the edits that remove channel groups."""
        return make_edits(self.module, self.channels, removed, self.adjustments)

    def narrow(self, removed: set[int], *, is_wide: bool = False) -> nn.Module:
        """Returns a copy without these channel groups.

        Args:
            removed: roots of the groups.
            is_wide: whether in float64.
        """
        module = share_values(self.wide) if is_wide else copy_module(self.module)
        apply_edits(module.eval(), self.make_edits(removed))
        families = {one.name for one in self.channels.families if removed & set(one.roots)}
        chosen = [one for one in self.rescalings if one.family in families]
        if chosen:
            after = find_scales(copy_module(module).double().eval(), self._scaling)
            for one in chosen:
                factor = one.factor(self._scales, after)
                rescale(module, self.channels, removed, one, factor)
        return module

    @property
    def wide(self) -> nn.Module:
        """The network in float64; nothing may be written into it, nor may it be run."""
        if self._memory.wide is None:
            self._memory.wide = copy_module(self.module).double().eval()
        return self._memory.wide

    @property
    def _scales(self) -> list[Scale]:
        if self._memory.scales is None:
            self._memory.scales = find_scales(share_values(self.wide), self._scaling)
        return self._memory.scales

    def propose_rescalings(
        self, family: Family, removed: set[int]
    ) -> Iterable[tuple[Rescaling, ...]]:
        """Yields what might make up for scales that are others without these groups."""
        after = find_scales(self.narrow(removed, is_wide=True), self._scaling)
        return propose_rescalings(self.module, self.channels, family, self._scales, after)

    def with_means(self, removed: set[int]) -> "PrunableNetwork":
        """Returns the same network, whose sums over these groups are means where divided so."""
        return replace(self, means=self.means | find_sums(self.channels, removed))

    def narrowed_statistics(self, removed: set[int]) -> tuple[str, ...]:
        """Names what is computed over the remaining channels only, see `run_zeroed`."""
        runs = [self.channels]
        runs += [view_branch(self.channels, one) for one in self.channels.trace.branches]
        names = (name for run in runs for name in name_narrowed_statistics(run, removed))
        return tuple(dict.fromkeys(names))

    def require_repeatable(self) -> None:
        """Checks that the network answers the same input in the same way each time.

        Raises:
            InputError: it does not, or it answers with NaN, so that nothing can be proven of it.
        """
        first, *others = (
            run_zeroed(self.wide, self.channels, set(), self.inputs).outputs for _ in range(_RUNS)
        )
        for other in others:
            if [one.shape for one in first] != [one.shape for one in other]:
                apart = float("inf")
            else:
                pairs = zip(first, other, strict=True)
                apart = float(np.max([largest_difference(a, b) for a, b in pairs]))
            if np.isnan(apart):
                raise explain_nan(self.module)
            if not apart <= TOLERANCE:
                raise InputError(
                    f"the network answers the same input otherwise each time (by {apart:.1e})",
                    "equal outputs in evaluation mode, or pruning cannot be proven",
                    "look for random numbers, and for indices that write to one place twice",
                )

    def largest_difference(self, removed: set[int]) -> float:
        """Returns how far the pruned network is from the zeroed original.

        Float64; relative, see `compress.prune.difference`.

        Raises:
            InputError: the pruned network does not run.
        """
        narrow = self.narrow(removed, is_wide=True)
        samples = (self.inputs, *(branch.inputs for branch in self.channels.trace.branches))
        apart = []
        for inputs, wanted in zip(samples, self._run_zeroed(removed), strict=True):
            found = find_answer(share_values(narrow), inputs)
            if [one.shape for one in found.outputs] != [one.shape for one in wanted.outputs]:
                raise InputError("the pruned network's outputs have other shapes")
            apart.append(found.difference(wanted))
        return float(np.max(apart))

    def _run_zeroed(self, removed: set[int]) -> list[Answer]:
        """Runs the zeroed original; several trials of the same groups have it in common."""
        for known in self._memory.zeroed:
            is_same = known.removed == removed and known.means == self.means
            if known.roots is self.channels.roots and is_same:
                return known.answers
        answers = [run_zeroed(self.wide, self.channels, removed, self.inputs, self.means)]
        for branch in self.channels.trace.branches:
            seen = view_branch(self.channels, branch)
            answers.append(run_zeroed(self.wide, seen, removed, branch.inputs, self.means))
        one = _Zeroed(self.channels.roots, frozenset(removed), self.means, answers)
        self._memory.zeroed = [*self._memory.zeroed[-_MOST_KEPT:], one]
        return answers

    def name_computed_scale(self, removed: set[int]) -> str:
        """Names a number that the code computes from how many channels there are, if there is one.

        Args:
            removed: groups without which the network runs.
        """
        after = find_scales(self.narrow(removed, is_wide=True), self._scaling)
        return name_changed_scale(self._scales, after)
