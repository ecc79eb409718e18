"""Makes sure that pruning a family leaves a network that runs and computes the same.

Python code may name the size of an axis (`self.num_heads`, `split((c, c))`). Which numbers have to
follow is found by trying: a few channels leave, and the pruned network must equal the original with
those channels zeroed. A family for which nothing works is left alone, with the reason.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, groupby, islice

from torch import Tensor, nn

from artifacts.module_copy import copy_module
from compress.prune.analysis.api import Turned, find_channels
from compress.prune.analysis.families import Family
from compress.prune.disturbers import (
    OTHERWISE,
    find_disturbers,
    find_first_problem,
    find_problem,
    settle_together,
)
from compress.prune.probes import all_probes, probe_cut, probe_first
from compress.prune.proof_inputs import (
    enliven_inputs,
    shrink_inputs,
    stretch_inputs,
    widen_inputs,
)
from compress.prune.prunable_network import PrunableNetwork
from compress.prune.shuffled_stages import add_shuffled_stages
from compress.prune.surgery import (
    Adjustment,
    Adjustments,
    attributes_of,
    list_parts,
    name_adjustment,
)
from compress.prune.turned_splits import turn_splits

_MOST_TOGETHER = 3
_MOST_NEAR, _MOST_FAR = 5, 8
"""How many attributes are tried, of the module that names the size and of those around it."""
_MOST_ALIKE = 4
"""More families of one size are not joined: each trial runs the network."""
_MOST_RESCALINGS = 64
"""How many ways to make up for a scale are tried for a family; those that work come early."""
_MOST_TRIALS = 600
"""How often a network runs, in search of what follows its families, before the rest stay whole."""
_GIVEN_UP = f"nothing more was tried after {_MOST_TRIALS} trials"


Code = frozenset[tuple[str, str, int]]
"""Operators with sizes that channels meet: the class of the module, the operator, its order."""


_Alike = tuple[dict[str, None], int]
"""Names of families that code meets at one size, and the size."""


class _Search:
    """Tries what may follow families, so often in all."""

    def __init__(self) -> None:
        self.left = _MOST_TRIALS

    def first_problem(self, network: PrunableNetwork, probes: list[set[int]]) -> str:
        """Returns what goes wrong; after the last trial, that nothing more is tried."""
        if self.left <= 0:
            return _GIVEN_UP
        self.left -= 1
        return find_first_problem(network, probes)


def open_network(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    *,
    protect: tuple[str, ...] = (),
    others: Sequence[tuple[Tensor, ...]] = (),
    progress: Callable[[str, int, int], None] | None = None,
) -> PrunableNetwork:
    """Finds what can be pruned and proves it on the network itself.

    What no inference has to compute is left alone, unless it is as wide as what one does.

    Args:
        module: the network; it is not changed.
        inputs: arguments to run it with.
        protect: modules whose outputs stay whole.
        others: arguments with which it runs other layers.
        progress: told (what, done, total).

    Raises:
        InputError: the network cannot run with these inputs, or answers otherwise each time.
    """
    wide = copy_module(module).double().eval()
    given, branches = enliven_inputs(widen_inputs(inputs)), [*map(widen_inputs, others)]

    def find(turned: Turned) -> PrunableNetwork:
        found = find_channels(wide, given, protect, turned, branches)
        channels = add_shuffled_stages(wide, given, found)
        return PrunableNetwork(module, given, channels, frozenset())

    def prove(trial: PrunableNetwork) -> PrunableNetwork:
        return _adapt_all(trial, progress)

    network = turn_splits(find, prove, lambda trial, gone: not find_problem(trial, gone))
    return replace(network, channels=network.channels.without_constant())


def _adapt_all(
    network: PrunableNetwork, progress: Callable[[str, int, int], None] | None
) -> PrunableNetwork:
    """Returns the network as it is where all families prune together, else with what follows."""
    trials = [set().union(*probes.values()) for probes in all_probes(network.channels)]
    if any(find_problem(network, removed) for removed in trials):
        return _adapt_families(network, progress)
    return network


def _adapt_families(
    network: PrunableNetwork, progress: Callable[[str, int, int], None] | None
) -> PrunableNetwork:
    """Returns the network with what has to follow its families, and without those left alone.

    It is tried hundreds of times with small pictures where it takes them, and proven in the end
    with pictures of another size as well: what follows must not depend on it.
    """
    small = shrink_inputs(network.wide, network.inputs)
    searched = network
    if small is not None:
        searched = PrunableNetwork(network.module, small, network.channels, network.adjustments)
    searched.require_repeatable()
    found = _try_families(searched, progress)
    other = network.inputs if small is not None else stretch_inputs(network.wide, network.inputs)
    if other is not None:
        found = settle_together(found.with_inputs(other))
    return found.with_inputs(network.inputs)


def _try_families(
    network: PrunableNetwork, progress: Callable[[str, int, int], None] | None
) -> PrunableNetwork:
    """Tries the families one by one.

    Those that meet the same code as one before are taken on trust until all are proven together;
    what follows one that does not stand that is then looked for as well.
    """
    families = network.channels.families
    reasons: dict[str, str] = {}
    code_met = {family.name: _code_met(network, family) for family in families}
    known: dict[Code, str] = {}
    search = _Search()
    for index, family in enumerate(families):
        if progress is not None:
            progress("prove", index, len(families))
        code = code_met[family.name]
        if code in known and not known[code]:
            continue
        adapted, problem = _adapt(network, family, search if code not in known else None)
        if problem:
            known[code] = problem
            reasons[family.name] = problem
            continue
        if (adapted.rescalings, adapted.means) == (network.rescalings, network.means):
            known[code] = ""
        network = adapted
    remaining = network.channels.without(reasons)
    for name in find_disturbers(replace(network, channels=remaining), all_probes(remaining)):
        family = next(one for one in families if one.name == name)
        network, problem = _adapt(network, family, search)
        if problem:
            reasons[name] = problem
    network = _join_families(network, reasons, code_met, search, progress)
    return settle_together(replace(network, channels=network.channels.without(reasons)))


def _join_families(
    network: PrunableNetwork,
    reasons: dict[str, str],
    code_met: Mapping[str, Code],
    search: _Search,
    progress: Callable[[str, int, int], None] | None,
) -> PrunableNetwork:
    """Joins families that the code takes to be equally wide, where each alone is left whole.

    One number or one tensor's size may serve two feature maps (`x.view(b, y.size(1), -1)`,
    `self.width`): if both lose as many channels, the code stays right. So may the size of what a
    module is given (`b, c, h, w = x.shape`). Where nothing was found for as many that meet the same
    code, nothing more is tried.

    Args:
        network: what is known so far.
        reasons: why families are left alone, by name; those of joined families are taken out.
        code_met: of each family, by name.
        search: what may still be tried.
        progress: told (what, done, total).
    """
    alike = _families_alike(network, reasons)
    in_vain: set[tuple[int, int, Code]] = set()
    for index, (group, size) in enumerate(alike):
        if progress is not None:
            progress("join", index, len(alike))
        if search.left <= 0:
            reasons |= {name: _give_up(reasons[name]) for name in group if name in reasons}
            continue
        several = combinations(group, 2) if 2 < len(group) <= _MOST_ALIKE else ()
        for names in (group, *several):
            channels = network.channels.join(names, size) if reasons.keys() >= set(names) else None
            if channels is None:
                continue
            joined = replace(network, channels=channels)
            whole = next(one for one in channels.families if one.name in names)
            code = len(names), size, frozenset().union(*(code_met[name] for name in names))
            adapted, problem = _adapt(joined, whole, search if code not in in_vain else None)
            if problem:
                in_vain.add(code)
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
    and that of every attention in it; then those that have one in common at the same size, where
    another layer joins stages of several widths.
    """
    groups: dict[tuple[str, int], dict[str, None]] = {}
    trace = network.channels.trace
    for family in network.channels.families:
        if family.name not in reasons:
            continue
        inside = network.channels.mark_groups(family.roots)
        for site in (*trace.sites, *trace.inputs):
            if inside[site.ids].any():
                groups.setdefault((site.place, site.ids.size), {})[family.name] = None
    alone = [(group, size) for (_, size), group in groups.items()]
    by_size = sorted(alone, key=lambda one: one[1])
    stages = (_merge_groups(several) for _, several in groupby(by_size, key=lambda one: one[1]))
    found = chain(_merge_groups(alone), *stages, alone)
    several = ((tuple(names), size) for names, size in found)
    return list(dict.fromkeys(one for one in several if len(one[0]) > 1))


def _merge_groups(groups: Iterable[_Alike]) -> list[_Alike]:
    """Returns groups as one where they have a name in common; each with the last one's size."""
    together: dict[str, _Alike] = {}
    for group, size in groups:
        whole = {name: None for one in group for name in together.get(one, ({one: None}, 0))[0]}
        together |= dict.fromkeys(whole, (whole, size))
    return list(together.values())


def _code_met(network: PrunableNetwork, family: Family) -> Code:
    """Returns the operators with sizes that a family's channels meet, and where."""
    inside, parts = network.channels.mark_groups(family.roots), list_parts(network.module)
    return frozenset(
        (type(parts[site.place]).__name__, site.operator, site.order)
        for site in network.channels.trace.sites
        if inside[site.ids].any()
    )


def _adapt(
    network: PrunableNetwork, family: Family, search: _Search | None
) -> tuple[PrunableNetwork, str]:
    """Finds what has to follow a family: numbers of modules, and values that make up for a scale.

    Args:
        network: what is known so far.
        family: the family to try.
        search: what may still be tried; None for a family that meets code for which nothing was
            found.

    Returns:
        the network as it is then known, and why the family has to stay whole; "" where it need not.
    """
    cut = probe_cut(network.channels).get(family.name, [])
    probes = [probe_first(family), *cut]
    first = find_first_problem(network, probes)
    if not first or search is None:
        return network, first
    if (found := _search(network, family, probes, first, search)) is not None:
        return found, ""
    return network, first if search.left > 0 else _give_up(first)


def _search(
    network: PrunableNetwork,
    family: Family,
    probes: list[set[int]],
    problem: str,
    search: _Search,
) -> PrunableNetwork | None:
    """Returns the network with what follows a family; None where nothing is found.

    What computes otherwise with several sets of numbers is scaled for one of them only, where the
    same goes wrong; and not before no set of numbers is enough alone. Where that does not help
    either, sums that the code divides by their number count as means.
    """
    apart = {problem: network}
    for extra in _candidates(network, family):
        trial = replace(network, adjustments=network.adjustments | extra)
        said = search.first_problem(trial, probes)
        if not said:
            return trial
        apart.setdefault(said, trial)
    ways = chain(_rescaled(apart, family, probes[0]), _averaged(apart, family))
    return next((one for one in ways if not search.first_problem(one, probes)), None)


def _give_up(problem: str) -> str:
    return problem if problem.endswith(_GIVEN_UP) else f"{problem}; {_GIVEN_UP}"


def _rescaled(
    apart: dict[str, PrunableNetwork], family: Family, probe: set[int]
) -> Iterator[PrunableNetwork]:
    """Yields networks with values that might make up for a scale.

    Args:
        apart: networks by what goes wrong in them; of those in which the same goes wrong, one.
        family: the family to try.
        probe: the groups that left.
    """
    ways = (
        replace(trial, rescalings=(*trial.rescalings, *found))
        for problem, trial in apart.items()
        if problem.startswith(OTHERWISE)
        for found in trial.propose_rescalings(family, probe)
    )
    return islice(ways, _MOST_RESCALINGS)


def _averaged(apart: dict[str, PrunableNetwork], family: Family) -> Iterator[PrunableNetwork]:
    """Yields networks whose sums over a family are means, see `_rescaled`."""
    for problem, trial in apart.items():
        averaged = trial.with_means(set(family.roots))
        if problem.startswith(OTHERWISE) and averaged.means != trial.means:
            yield averaged


def _candidates(network: PrunableNetwork, family: Family) -> Iterable[Adjustments]:
    """Yields sets of attributes equal to a size that the code names, likely ones first."""
    inside, parts = network.channels.mark_groups(family.roots), list_parts(network.module)
    own: dict[tuple[str, str], set[Adjustment]] = {}
    outer: dict[tuple[str, str], set[Adjustment]] = {}
    called: dict[tuple[str, str], set[Adjustment]] = {}
    for site in network.channels.trace.sites:
        if not inside[site.ids].any():
            continue
        found = list(attributes_of(parts, site))
        for owner, name, _ in found:
            is_part = len(owner) > len(site.place)
            chosen = called if is_part else own if owner == found[0][0] else outer
            use = name_adjustment(parts, site, owner, name)
            chosen.setdefault(use[:2], set()).add(use)
    near = [*own.values(), *called.values()][:_MOST_NEAR]
    for count in range(1, min(_MOST_TOGETHER, len(near)) + 1):
        yield from (frozenset().union(*choice) for choice in combinations(near, count))
    yield from (frozenset(uses) for uses in [*outer.values()][:_MOST_FAR])
