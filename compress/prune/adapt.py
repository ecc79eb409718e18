"""Makes sure that pruning a family leaves a network that runs and computes the same.

Python code may name the size of an axis (`self.num_heads`, `split((c, c))`). Which numbers have to
follow is found by trying: a few channels leave, and the pruned network must equal the original with
those channels zeroed. A family for which nothing works is left alone, with the reason.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations

import numpy as np
from torch import Tensor, nn

from artifacts.errors import InputError, first_line
from artifacts.module_copy import copy_module
from compress.prune.analysis.api import find_channels
from compress.prune.analysis.families import Channels, Family
from compress.prune.prunable_network import TOLERANCE, PrunableNetwork
from compress.prune.surgery import (
    Adjustment,
    Adjustments,
    ConflictError,
    attributes_of,
    name_adjustment,
)

_MOST_TOGETHER = 3
_MOST_NEAR, _MOST_FAR = 5, 8
"""How many attributes are tried, of the module that names the size and of those around it."""
_MOST_ALIKE = 4
"""More families of one size are not joined: each trial runs the network."""
_OTHERWISE = "pruned, it computes something else"
_PROBED_PART = 4
"""One in so many channel groups leaves at most (of few groups two) while a network is tried."""


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
    `self.width`): if both lose as many channels, the code stays right. So may the size of what a
    module is given (`b, c, h, w = x.shape`).

    Args:
        network: what is known so far.
        reasons: why families are left alone, by name; those of joined families are taken out.
    """
    for group, size in _families_alike(network, reasons):
        several = combinations(group, 2) if 2 < len(group) <= _MOST_ALIKE else ()
        for names in (group, *several):
            channels = network.channels.join(names, size) if reasons.keys() >= set(names) else None
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


def _families_alike(
    network: PrunableNetwork, reasons: dict[str, str]
) -> list[tuple[tuple[str, ...], int]]:
    """Returns groups of families left alone that code of one module meets at one size, and it.

    Those of several modules that have a family in common come first, as one: the width of a stage
    and that of every attention in it.
    """
    groups: dict[tuple[str, int], dict[str, None]] = {}
    trace = network.channels.trace
    for family in network.channels.families:
        if family.name not in reasons:
            continue
        members = np.array(family.roots)
        for site in (*trace.sites, *trace.inputs):
            if np.isin(network.channels.roots[site.ids], members).any():
                groups.setdefault((site.place, site.ids.size), {})[family.name] = None
    together: dict[str, tuple[dict[str, None], int]] = {}
    for (_, size), group in groups.items():
        whole = {name: None for one in group for name in together.get(one, ({one: None}, 0))[0]}
        together |= dict.fromkeys(whole, (whole, size))
    alone = ((group, size) for (_, size), group in groups.items())
    several = ((tuple(names), size) for names, size in (*together.values(), *alone))
    return list(dict.fromkeys(one for one in several if len(one[0]) > 1))


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
    own: dict[tuple[str, str], set[Adjustment]] = {}
    outer: dict[tuple[str, str], set[Adjustment]] = {}
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
