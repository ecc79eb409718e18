"""Makes sure that pruning a family leaves a network that runs and computes the same.

Python code may name the size of an axis (`self.num_heads`, `split((c, c))`). Which numbers have to
follow is found by trying: a few channels leave, and the pruned network must equal the original with
those channels zeroed. A family for which nothing works is left alone, with the reason.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

import numpy as np
import torch
from torch import Tensor, nn

from artifacts.edits import apply_edits
from artifacts.errors import InputError, first_line
from artifacts.module_copy import copy_module
from compress.prune.analysis.api import find_channels, output_tensors
from compress.prune.analysis.channel_sets import Ids
from compress.prune.analysis.families import Channels, Family
from compress.prune.computed_scales import Scale, find_scales, name_changed_scale
from compress.prune.double_precision import run_widely
from compress.prune.reference import name_narrowed_statistics, run_zeroed
from compress.prune.rescaling import Rescaling, propose_rescalings, rescale
from compress.prune.surgery import (
    Adjustments,
    ConflictError,
    Edits,
    attributes_of,
    make_edits,
    name_adjustment,
)

TOLERANCE = 1e-9
"""Largest difference from the zeroed original in float64, relative to the largest output."""
_MOST_TOGETHER = 3
_MOST_NEAR, _MOST_FAR = 5, 8
"""How many attributes are tried, of the module that names the size and of those around it."""
_MOST_ALIKE = 4
"""More families of one size are not joined: each trial runs the network."""
_RUNS = 3
_MOST_KEPT = 3
_OTHERWISE = "pruned, it computes something else"
_PROBED_PART = 4
"""One in so many channel groups leaves at most (of few groups two) while a network is tried."""


@dataclass(frozen=True)
class _Zeroed:
    """What the original computes without some groups of a structure."""

    roots: Ids
    removed: frozenset[int]
    outputs: list[Tensor]


@dataclass(frozen=True)
class PrunableNetwork:
    """A network whose channel groups are known and proven removable.

    Attributes:
        module: the network.
        inputs: arguments in float64 with which it was traced.
        channels: its structure.
        adjustments: attributes that have to follow a channel count.
        rescalings: values that make up for scales which the code computes from one.
    """

    module: nn.Module
    inputs: tuple[Tensor, ...]
    channels: Channels
    adjustments: Adjustments
    rescalings: tuple[Rescaling, ...] = ()
    _zeroed: list[_Zeroed] = field(default_factory=list, repr=False, compare=False)

    def make_edits(self, removed: set[int]) -> Edits:
        """Returns the edits that remove channel groups."""
        return make_edits(self.module, self.channels, removed, self.adjustments)

    def narrow(self, removed: set[int], *, is_wide: bool = False) -> nn.Module:
        """Returns a copy without these channel groups.

        Args:
            removed: roots of the groups.
            is_wide: whether in float64.
        """
        module = copy_module(self.module)
        if is_wide:
            module = module.double()
        apply_edits(module.eval(), self.make_edits(removed))
        families = {one.name for one in self.channels.families if removed & set(one.roots)}
        chosen = [one for one in self.rescalings if one.family in families]
        if chosen:
            after = find_scales(copy_module(module).double().eval(), self.inputs)
            for one in chosen:
                factor = one.factor(self._scales, after)
                rescale(module, self.channels, removed, one, factor)
        return module

    @cached_property
    def _scales(self) -> list[Scale]:
        return find_scales(copy_module(self.module).double().eval(), self.inputs)

    def propose_rescalings(
        self, family: Family, removed: set[int]
    ) -> Iterable[tuple[Rescaling, ...]]:
        """Yields what might make up for scales that are others without these groups."""
        after = find_scales(self.narrow(removed, is_wide=True), self.inputs)
        return propose_rescalings(self.module, self.channels, family, self._scales, after)

    def narrowed_statistics(self, removed: set[int]) -> tuple[str, ...]:
        """Names what is computed over the remaining channels only, see `run_zeroed`."""
        return name_narrowed_statistics(self.channels, removed)

    def require_repeatable(self) -> None:
        """Checks that the network answers the same input in the same way each time.

        Raises:
            InputError: it does not, so that nothing can be proven of it.
        """
        wide = copy_module(self.module).double().eval()
        first, *others = (run_zeroed(wide, self.channels, set(), self.inputs) for _ in range(_RUNS))
        for other in others:
            if [one.shape for one in first] != [one.shape for one in other]:
                apart = float("inf")
            else:
                apart = max(_difference(a, b) for a, b in zip(first, other, strict=True))
            if not apart <= TOLERANCE:
                raise InputError(
                    f"the network answers the same input otherwise each time (by {apart:.1e})",
                    "equal outputs in evaluation mode, or pruning cannot be proven",
                    "look for random numbers, and for indices that write to one place twice",
                )

    def largest_difference(self, removed: set[int]) -> float:
        """Returns how far the pruned network is from the zeroed original.

        Float64; relative to the largest absolute output.

        Raises:
            InputError: the pruned network does not run.
        """
        wanted = self._run_zeroed(removed)
        with torch.no_grad():
            found = output_tensors(run_widely(self.narrow(removed, is_wide=True), self.inputs))
        if [value.shape for value in found] != [value.shape for value in wanted]:
            raise InputError("the pruned network's outputs have other shapes")
        return float(np.max([_difference(a, b) for a, b in zip(found, wanted, strict=True)]))

    def _run_zeroed(self, removed: set[int]) -> list[Tensor]:
        """Runs the zeroed original; several trials of the same groups have it in common."""
        for known in self._zeroed:
            if known.roots is self.channels.roots and known.removed == removed:
                return known.outputs
        wide = copy_module(self.module).double().eval()
        outputs = run_zeroed(wide, self.channels, removed, self.inputs)
        self._zeroed[:] = [
            *self._zeroed[-_MOST_KEPT:],
            _Zeroed(self.channels.roots, frozenset(removed), outputs),
        ]
        return outputs

    def name_computed_scale(self, removed: set[int]) -> str:
        """Names a number that the code computes from how many channels there are, if there is one.

        Args:
            removed: groups without which the network runs.
        """
        after = find_scales(self.narrow(removed, is_wide=True), self.inputs)
        return name_changed_scale(self._scales, after)


def _difference(found: Tensor, wanted: Tensor) -> float:
    if not wanted.is_floating_point():
        return float((found != wanted).any())
    if not wanted.numel():
        return 0.0
    scale = float(wanted.abs().max()) or 1.0
    return float((found - wanted).abs().max()) / scale


def open_network(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    *,
    protect: tuple[str, ...] = (),
    progress: Callable[[str, int, int], None] | None = None,
) -> PrunableNetwork:
    """Finds what can be pruned and proves it on the network itself.

    Args:
        module: the network; it is not changed.
        inputs: arguments to run it with.
        protect: modules whose outputs stay whole.
        progress: told (what, done, total).

    Raises:
        InputError: the network cannot run with these inputs, or answers otherwise each time.
    """
    wide = copy_module(module).double().eval()
    given = tuple(value.double() if value.is_floating_point() else value for value in inputs)
    channels = find_channels(wide, given, protect)
    network = PrunableNetwork(module, given, channels, frozenset())
    if not any(
        _problem(network, set().union(*probes.values())) for probes in _all_probes(channels)
    ):
        return network
    network.require_repeatable()
    return _try_families(network, progress)


def _try_families(
    network: PrunableNetwork, progress: Callable[[str, int, int], None] | None
) -> PrunableNetwork:
    """Tries the families one by one.

    Those that meet the same code as one before are taken on trust until all are proven together.
    """
    families = network.channels.families
    reasons: dict[str, str] = {}
    known: dict[frozenset[tuple[str, str, int]], str] = {}
    for index, family in enumerate(families):
        if progress is not None:
            progress("prove", index, len(families))
        code = _code_met(network, family)
        if code in known and not known[code]:
            continue
        adapted, problem = _adapt(network, family, is_new=code not in known)
        if problem:
            known[code] = problem
            reasons[family.name] = problem
            continue
        if adapted.rescalings == network.rescalings:
            known[code] = ""
        network = adapted
    network = _join_families(network, reasons)
    return _settle_together(replace(network, channels=network.channels.without(reasons)))


def _join_families(network: PrunableNetwork, reasons: dict[str, str]) -> PrunableNetwork:
    """Joins families that the code takes to be equally wide, where each alone is left whole.

    One number or one tensor's size may serve two feature maps (`x.view(b, y.size(1), -1)`,
    `self.width`): if both lose as many channels, the code stays right.

    Args:
        network: what is known so far.
        reasons: why families are left alone, by name; those of joined families are taken out.
    """
    for group in _families_alike(network, reasons):
        several = combinations(group, 2) if 2 < len(group) <= _MOST_ALIKE else ()
        for names in (group, *several):
            channels = network.channels.join(names) if reasons.keys() >= set(names) else None
            if channels is None:
                continue
            joined = replace(network, channels=channels)
            whole = next(one for one in channels.families if one.name in names)
            adapted, problem = _adapt(joined, whole, is_new=True)
            if problem:
                continue
            network = adapted
            for name in names:
                del reasons[name]
    return network


def _families_alike(network: PrunableNetwork, reasons: dict[str, str]) -> list[tuple[str, ...]]:
    """Returns groups of families left alone that code of one module meets at one size.

    Those of several modules that have a family in common come first, as one: the width of a stage
    and that of every attention in it.
    """
    groups: dict[tuple[str, int], dict[str, None]] = {}
    for family in network.channels.families:
        if family.name not in reasons:
            continue
        members = np.array(family.roots)
        for site in network.channels.trace.sites:
            if np.isin(network.channels.roots[site.ids], members).any():
                groups.setdefault((site.place, site.ids.size), {})[family.name] = None
    together: dict[str, dict[str, None]] = {}
    for group in groups.values():
        whole = {name: None for one in group for name in together.get(one, {one: None})}
        together |= dict.fromkeys(whole, whole)
    several = (tuple(names) for names in (*together.values(), *groups.values()) if len(names) > 1)
    return list(dict.fromkeys(several))


def _code_met(network: PrunableNetwork, family: Family) -> frozenset[tuple[str, str, int]]:
    """Returns the operators with sizes that a family's channels meet, and where."""
    members = np.array(family.roots)
    return frozenset(
        (type(network.module.get_submodule(site.place)).__name__, site.operator, site.order)
        for site in network.channels.trace.sites
        if np.isin(network.channels.roots[site.ids], members).any()
    )


def _adapt(
    network: PrunableNetwork, family: Family, *, is_new: bool
) -> tuple[PrunableNetwork, str]:
    """Finds what has to follow a family: numbers of modules, and values that make up for a scale.

    Args:
        network: what is known so far.
        family: the family to try.
        is_new: whether to search; a family that meets code for which nothing was found does not.

    Returns:
        the network as it is then known, and why the family has to stay whole; "" where it need not.
    """
    cut = _probe_cut(network.channels).get(family.name, [])
    probes = [{_probe_root(family)}, *cut]
    first = _first_problem(network, probes)
    if not first or not is_new:
        return network, first
    for extra in (frozenset(), *_candidates(network, family)):
        trial = replace(network, adjustments=network.adjustments | extra)
        problem = _first_problem(trial, probes) if extra else first
        if not problem:
            return trial, ""
        if not problem.startswith(_OTHERWISE):
            continue
        for found in trial.propose_rescalings(family, probes[0]):
            scaled = replace(trial, rescalings=(*trial.rescalings, *found))
            if not _first_problem(scaled, probes):
                return scaled, ""
    return network, first


def _candidates(network: PrunableNetwork, family: Family) -> Iterable[Adjustments]:
    """Yields sets of attributes equal to a size that the code names, likely ones first."""
    members = np.array(family.roots)
    own: dict[tuple[str, str], set[tuple[str, str, str, int]]] = {}
    outer: dict[tuple[str, str], set[tuple[str, str, str, int]]] = {}
    for site in network.channels.trace.sites:
        if not np.isin(network.channels.roots[site.ids], members).any():
            continue
        found = list(attributes_of(network.module, site))
        for owner, name, _ in found:
            chosen = own if owner == found[0][0] else outer
            use = name_adjustment(network.module, site, owner, name)
            chosen.setdefault(use[:2], set()).add(use)
    near = list(own.values())[:_MOST_NEAR]
    for count in range(1, min(_MOST_TOGETHER, len(near)) + 1):
        yield from (frozenset().union(*choice) for choice in combinations(near, count))
    yield from (frozenset(uses) for uses in [*outer.values()][:_MOST_FAR])


def _settle_together(network: PrunableNetwork) -> PrunableNetwork:
    """Adds family by family until all prune together; one that disturbs others is left alone."""
    reasons: dict[str, str] = {}
    for probes in _all_probes(network.channels):
        left = {name: probe for name, probe in probes.items() if name not in reasons}
        if not _problem(network, set().union(*left.values())):
            continue
        removed: set[int] = set()
        for name, probe in left.items():
            problem = _problem(network, removed | probe)
            if problem:
                reasons[name] = problem
            else:
                removed |= probe
    return replace(network, channels=network.channels.without(reasons))


def _all_probes(channels: Channels) -> list[dict[str, set[int]]]:
    """Returns what leaves in each trial of all families together; families without a probe stay.

    Every other of the families that code cuts loses much, then those between: if all did, parts
    that the code computes from the whole would keep their share.
    """
    cut = _probe_cut(channels)
    trials = [_probe_apart(channels)]
    for probes in zip(*cut.values(), strict=True):
        much = list(zip(cut, probes, strict=True))
        trials += [dict(much[::2]), dict(much[1::2])]
    return [probes for probes in trials if probes]


def _probe_cut(channels: Channels) -> dict[str, list[set[int]]]:
    """Returns half and nearly all of the roots of each family that code cuts into unequal parts.

    Where the code computes a part from the whole (`c * 3 // 8`), its rounding may hide one channel.
    """
    cut = channels.roots[np.concatenate([np.empty(0, np.int64), *channels.trace.cuts])]
    return {
        family.name: [set(family.roots[1::2]), set(family.roots[1:])]
        for family in channels.families
        if np.isin(family.roots, cut).any()
    }


def _probe_root(family: Family) -> int:
    return family.roots[len(family.roots) // 3]


def _probe_apart(channels: Channels) -> dict[str, set[int]]:
    """Returns roots to remove per family, so that families of one size get different sizes.

    Code may take two of them to be equal (a view with the size of another tensor), which would
    hold as long as each loses as many; a real cut takes more from one than from the other.
    """
    probes = {}
    seen: Counter[int] = Counter()
    for family in channels.families:
        size = len(family.roots)
        most = min(max(size // _PROBED_PART, 2), size - 1)
        first, count = size // 3, 1 + seen[size] % most
        seen[size] += 1
        probes[family.name] = {family.roots[(first + step) % size] for step in range(count)}
    return probes


def _first_problem(network: PrunableNetwork, probes: list[set[int]]) -> str:
    return next(filter(None, (_problem(network, removed) for removed in probes)), "")


def _problem(network: PrunableNetwork, removed: set[int]) -> str:
    """Returns what goes wrong when these groups leave; empty where nothing does."""
    try:
        difference = network.largest_difference(removed)
    except (InputError, ConflictError) as error:
        return f"its code names a size that cannot follow ({first_line(error.__cause__ or error)})"
    if difference <= TOLERANCE:
        return ""
    scale = network.name_computed_scale(removed)
    why = f"; its code computes a scale from their number: {scale}" if scale else ""
    return f"{_OTHERWISE} (by {difference:.1e}{why})"
