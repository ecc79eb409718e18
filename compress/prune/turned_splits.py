"""Lets channels leave along another axis where code splits one into several and names the longest.

Attention that views its channels as `(-1, self.head_dim)` divides by the root of `head_dim`, which
usually is larger than the number of heads. Whole heads leave without anything that has to follow.
"""

from collections.abc import Callable

import numpy as np
from torch import nn

from compress.prune.analysis.api import Turned, count_channels
from compress.prune.analysis.families import Channels, Family
from compress.prune.probes import probe_first
from compress.prune.prunable_network import PrunableNetwork

Find = Callable[[Turned], PrunableNetwork]
Prove = Callable[[PrunableNetwork], PrunableNetwork]
IsProven = Callable[[PrunableNetwork, set[int]], bool]


def turn_splits(find: Find, prove: Prove, is_proven: IsProven) -> PrunableNetwork:
    """Returns a proven network, with those splits turned with which more channels may leave.

    A view is turned only where channels then leave without anything that has to follow; slices of
    several sizes, whose numbers may have to, are tried with all that follows.

    Args:
        find: finds the channels of the network, where these splits are turned.
        prove: finds what has to follow them, and leaves alone what cannot leave.
        is_proven: whether these groups may leave as the network is known.
    """
    found = find(frozenset())
    network = prove(found)
    turned: Turned = frozenset()
    for (_, is_cut), places in _splits_left_whole(found.channels, network.channels).items():
        trial = find(turned | places)
        sources = {family.source for family in _families_lost(found.channels, network.channels)}
        freed = [family for family in trial.channels.families if family.source in sources]
        if not is_cut and not any(is_proven(trial, probe_first(family)) for family in freed):
            continue
        other = prove(trial)
        if count_channels(other.channels) > count_channels(network.channels):
            found, network, turned = trial, other, turned | places
    return network


def _families_lost(found: Channels, proven: Channels) -> list[Family]:
    """Returns the families that could not be proven."""
    kept = {root for family in proven.families for root in family.roots}
    return [
        family
        for family in found.families
        if kept.isdisjoint(proven.roots[np.array(family.roots)].tolist())
    ]


def _splits_left_whole(
    found: Channels, proven: Channels
) -> dict[tuple[type[nn.Module], bool], Turned]:
    """Returns the splits of families that could not be proven, by class and whether it is slices.

    Those of one class are turned together.
    """
    lost = [family.roots for family in _families_lost(found, proven)]
    roots = np.concatenate([np.empty(0, np.int64), *map(np.array, lost)])
    alike: dict[tuple[type[nn.Module], bool], Turned] = {}
    for split in found.trace.splits:
        if np.isin(found.roots[split.ids], roots).any():
            place, code = (split.place, split.order), (split.kind, split.is_cut)
            alike[code] = alike.get(code, frozenset()) | {place}
    return alike
