"""Brings runs of a network together that used other weights.

Weights come first among the ids of a run, so that they have the same in each; the number of a set
is its least id. So sets with weights have the same number in both once their ties are joined.
"""

from dataclasses import replace

import numpy as np

from compress.prune.analysis.channel_sets import FIXED, Ids
from compress.prune.analysis.families import Channels
from compress.prune.analysis.trace import Branch, Trace


def join_branch(trace: Trace, branch: Branch) -> None:
    """Ties and keeps in a run what another one ties and keeps.

    Args:
        trace: of the first run.
        branch: of another.
    """
    other, last = branch.trace, _last_weight(trace)
    roots, reasons = other.sets.solve()
    for axes in trace.weights.values():
        for ids in axes.values():
            trace.sets.tie(ids, roots[ids], "")
    for root, reason in reasons.items():
        if FIXED < root <= last:
            trace.sets.freeze(np.array([root]), reason)
    trace.unneeded &= other.unneeded
    trace.whole_groups |= other.whole_groups
    known = {(site.modules, site.operator, site.order, site.axis) for site in trace.sites}
    for site in other.sites:
        if (site.modules, site.operator, site.order, site.axis) not in known:
            ids = roots[site.ids]
            trace.sites.append(replace(site, ids=np.where(ids <= last, ids, FIXED)))
    trace.branches.append(branch)


def view_branch(channels: Channels, branch: Branch) -> Channels:
    """Returns the channel groups as they are in another run; it has no families of its own."""
    last = _last_weight(channels.trace)
    roots, _ = branch.trace.sets.solve()
    with_weights = roots <= last
    roots[with_weights] = channels.roots[roots[with_weights]]
    return Channels(branch.trace, roots, (), ())


def _last_weight(trace: Trace) -> int:
    """Returns the largest id of a weight."""
    rows: list[Ids] = [ids for axes in trace.weights.values() for ids in axes.values()]
    return max((int(ids.max()) for ids in rows if ids.size), default=FIXED)
