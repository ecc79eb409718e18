"""What goes wrong when channels leave, and the families that are to blame where several do."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from artifacts.errors import InputError, first_line
from compress.prune.probes import all_probes
from compress.prune.prunable_network import TOLERANCE, PrunableNetwork
from compress.prune.surgery import ConflictError

OTHERWISE = "pruned, it computes something else"
"""How a problem begins that is none of shapes."""


def find_problem(network: PrunableNetwork, removed: set[int]) -> str:
    """Returns what goes wrong when these groups leave; empty where nothing does."""
    try:
        difference = network.largest_difference(removed)
    except (InputError, ConflictError) as error:
        return f"its code names a size that cannot follow ({first_line(error.__cause__ or error)})"
    if difference <= TOLERANCE:
        return ""
    scale = network.name_computed_scale(removed)
    why = f"; its code computes a scale from their number: {scale}" if scale else ""
    return f"{OTHERWISE} (by {difference:.1e}{why})"


def find_first_problem(network: PrunableNetwork, probes: Sequence[set[int]]) -> str:
    """Returns what goes wrong in the first of several trials in which something does; else ""."""
    return next(filter(None, (find_problem(network, removed) for removed in probes)), "")


def find_disturbers(
    network: PrunableNetwork, trials: Sequence[Mapping[str, set[int]]]
) -> dict[str, str]:
    """Adds families in order; returns those with which the ones before no longer prune, and why.

    As many at once as prune together: where some do not, they are added in two halves, so that one
    of many is found in few proofs.

    Args:
        network: the network.
        trials: what leaves of each family, by name; one after the other.
    """
    reasons: dict[str, str] = {}
    for probes in trials:
        left = {name: probe for name, probe in probes.items() if name not in reasons}
        removed: set[int] = set()
        waiting = [list(left)] if left else []
        while waiting:
            names = waiting.pop()
            added = set().union(*(left[name] for name in names))
            problem = find_problem(network, removed | added)
            if not problem:
                removed |= added
            elif len(names) == 1:
                reasons[names[0]] = problem
            else:
                middle = len(names) // 2
                waiting += [names[middle:], names[:middle]]
    return reasons


def settle_together(network: PrunableNetwork) -> PrunableNetwork:
    """Leaves families alone until all others prune together."""
    disturbers = find_disturbers(network, all_probes(network.channels))
    return replace(network, channels=network.channels.without(disturbers))


def spare_disturbers(network: PrunableNetwork, removed: set[int]) -> PrunableNetwork:
    """Leaves families alone with which a cut is none of channels that count for nothing.

    Code may do something else below a width that no trial reached (`if c < 20`).

    Args:
        network: the network.
        removed: roots of the groups that were to leave.
    """
    probes = {one.name: removed & set(one.roots) for one in network.channels.families}
    cut = {name: roots for name, roots in probes.items() if roots}
    return replace(network, channels=network.channels.without(find_disturbers(network, [cut])))
