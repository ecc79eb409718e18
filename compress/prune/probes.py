"""Which channels leave while a network is tried."""

from collections import Counter

import numpy as np

from compress.prune.analysis.families import Channels, Family

_PROBED_PART = 4
"""One in so many channel groups leaves at most (of few groups two) while a network is tried."""


def all_probes(channels: Channels) -> list[dict[str, set[int]]]:
    """Returns what leaves in each trial of all families together; families without a probe stay.

    Every other of the families that code cuts loses much, then those between: if all did, parts
    that the code computes from the whole would keep their share.
    """
    cut = probe_cut(channels)
    trials = [_probe_apart(channels)]
    for probes in zip(*cut.values(), strict=True):
        much = list(zip(cut, probes, strict=True))
        trials += [dict(much[::2]), dict(much[1::2])]
    return [probes for probes in trials if probes]


def probe_cut(channels: Channels) -> dict[str, list[set[int]]]:
    """Returns half and nearly all of the roots of each family that code cuts into unequal parts.

    Where the code computes a part from the whole (`c * 3 // 8`), its rounding may hide one channel.
    """
    cut = channels.roots[np.concatenate([np.empty(0, np.int64), *channels.trace.cuts])]
    return {
        family.name: _probe_much(family)
        for family in channels.families
        if np.isin(family.roots, cut).any()
    }


def _probe_much(family: Family) -> list[set[int]]:
    if family.stage is not None:
        widths = [*family.stage.layouts]
        return [family.leave(widths[len(widths) // 2]), family.leave(widths[-1])]
    return [set(family.roots[1::2]), set(family.roots[1:])]


def probe_first(family: Family) -> set[int]:
    """Returns the one channel group that leaves first: not at an end, where code may pick one."""
    if family.stage is not None:
        return family.leave(next(iter(family.stage.layouts)))
    return {family.roots[len(family.roots) // 3]}


def _probe_apart(channels: Channels) -> dict[str, set[int]]:
    """Returns roots to remove per family, so that families of one size get different sizes.

    Code may take two of them to be equal (a view with the size of another tensor), which would
    hold as long as each loses as many; a real cut takes more from one than from the other.
    """
    probes = {}
    seen: Counter[int] = Counter()
    for family in channels.families:
        if family.stage is not None:
            widths = [*family.stage.layouts]
            probes[family.name] = family.leave(widths[seen[family.count] % len(widths)])
            seen[family.count] += 1
            continue
        size = len(family.roots)
        most = min(max(size // _PROBED_PART, 2), size - 1)
        first, count = size // 3, 1 + seen[size] % most
        seen[size] += 1
        probes[family.name] = {family.roots[(first + step) % size] for step in range(count)}
    return probes
