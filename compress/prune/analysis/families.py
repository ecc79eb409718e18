"""Channel groups (what must leave together), gathered into families of groups alike."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from compress.prune.analysis.channel_sets import FIXED, Ids, join_sets
from compress.prune.analysis.shuffles import Kind, Place, Stage
from compress.prune.analysis.trace import Trace

TIED_TOGETHER = "all its channels are tied together"
PICKED_BY_TABLE = "picks channels by a table"
_NOT_USED = "the forward pass does not use it in evaluation mode"
_IN_BRANCH = "only other samples than the first use it"
NOT_NEEDED = "no output of the network is computed from it; an export leaves it out"
CONSTANT = "computed the same for every input; a runtime computes it once"
_NO_LAYER = "no layer has it as its weight, at most what is computed from it"


@dataclass(frozen=True)
class Family:
    """Channel groups that touch the same weights in the same way: the width of one feature map.

    Where the code cuts a feature map into unequal parts, each part is a family.

    Attributes:
        name: the weight's, with a number where several families share the weight.
        source: the weight that makes these channels, the first of them, and its axis.
        roots: one number per channel group.
        places: weights and axes that each group occupies, with the number of indices.
        is_exact: whether removing groups leaves the rest's values as they are; False where a
            normalization or a mean computes over these channels.
        stage: where channels are shuffled, which of them may leave together; `roots` are then those
            of single channels, and `places` has the indices of each of its units.
        rest: how many channels that never leave are beside these wherever they are.
    """

    name: str
    source: Place
    roots: tuple[int, ...]
    places: tuple[tuple[Place, int], ...]
    is_exact: bool = True
    stage: Stage | None = None
    rest: int = 0

    @property
    def count(self) -> int:
        """How many groups there are of which all but some may leave."""
        return self.stage.units if self.stage is not None else len(self.roots)

    def allows(self, kept: int) -> bool:
        """Returns whether so many groups may be left."""
        return self.stage is None or kept == self.count or kept in self.stage.layouts

    def leave(self, kept: int, scores: NDArray[np.float64] | None = None) -> set[int]:
        """Returns the roots that leave where so many groups are kept: the least important ones.

        Args:
            kept: a number that it allows.
            scores: importance by id; None takes the last.
        """
        if self.stage is not None:
            return self.stage.leave(kept, scores)
        if scores is None:
            return set(self.roots[kept:])
        ordered = sorted(self.roots, key=lambda root: (scores[root], root))
        return set(ordered[: len(ordered) - kept])

    @property
    def width(self) -> int:
        """How many outputs of its source each group is."""
        return dict(self.places)[self.source]


@dataclass(frozen=True)
class LeftAlone:
    """Channels of a weight that cannot be removed.

    Attributes:
        weight: the weight that makes them.
        channels: how many.
        reason: why.
    """

    weight: str
    channels: int
    reason: str


@dataclass(frozen=True)
class Channels:
    """The channel structure of a network.

    Attributes:
        trace: what was followed.
        roots: the channel group of each id.
        families: what can be pruned.
        left_alone: what cannot, and why.
    """

    trace: Trace
    roots: Ids
    families: tuple[Family, ...]
    left_alone: tuple[LeftAlone, ...]

    def mark_groups(self, roots: Collection[int]) -> NDArray[np.bool_]:
        """Returns which channels are of these groups, by id."""
        return np.isin(self.roots, np.array(sorted(roots), np.int64))

    def without(self, reasons: dict[str, str]) -> "Channels":
        """Returns the structure with some families kept whole, by name and reason."""
        gone = [family for family in self.families if family.name in reasons]
        added = tuple(
            LeftAlone(family.source[0], family.count * family.width, reasons[family.name])
            for family in gone
        )
        kept = tuple(family for family in self.families if family.name not in reasons)
        return Channels(self.trace, self.roots, kept, self.left_alone + added)

    def without_constant(self) -> "Channels":
        """Returns the structure without families whose channels no inference has to compute."""
        ends = [ids for layer in self.trace.needed_layers for ids in (layer.inputs, layer.outputs)]
        busy = set(self.roots[np.concatenate([np.empty(0, np.int64), *ends])].tolist())
        idle = [family.name for family in self.families if not busy.intersection(family.roots)]
        return self.without(dict.fromkeys(idle, CONSTANT))

    def join(self, names: Sequence[str], size: int) -> "Channels | None":
        """Returns the structure with families that are equally wide as one.

        Channel by channel where weights of theirs have as many (a feature map and the heads of an
        attention that is added to it), else group by group.

        Args:
            names: of the families; the first in the network's order gives the name.
            size: the number of channels that the code takes to be the same.

        Returns:
            None where they do not fit together.
        """
        chosen = [family for family in self.families if family.name in names]
        if any(family.stage is not None for family in chosen):
            return None
        first, roots = chosen[0], self.roots
        for family in chosen[1:]:
            pair = self._rows_alike(first, family, size)
            if pair is None:
                return None
            roots = join_sets(roots, *pair)
        members = {int(root) for family in chosen for root in roots[np.array(family.roots)]}
        places = self._count_places(roots, members)
        if places is None or len(members) < 2:
            return None
        ordered = tuple(dict.fromkeys(roots[np.array(first.roots)].tolist()))
        is_exact = all(family.is_exact for family in chosen)
        whole = replace(first, roots=ordered, places=places, is_exact=is_exact)
        kept = tuple(
            whole if family is first else family
            for family in self.families
            if family is first or family not in chosen
        )
        return replace(self, roots=roots, families=kept)

    def _rows_alike(self, first: Family, second: Family, size: int) -> tuple[Ids, Ids] | None:
        """Returns the channel groups of two families in an order in which they may be joined.

        As they lie in a weight of each that has as many channels as the code names, in the one that
        makes them before others; else the outputs of the weight that makes the first, and as many
        indices of the second (a packed projection makes three of each that its reader has one of);
        else group by group.
        """
        rows, others = self._rows(first), self._rows(second)
        for wanted in (size, rows[0].size):
            row = next((row for row in rows if row.size == wanted), None)
            other = next((row for row in others if row.size == wanted), None)
            if row is not None and other is not None:
                return row, other
        if len(first.roots) != len(second.roots):
            return None
        return np.array(first.roots), np.array(second.roots)

    def _rows(self, family: Family) -> list[Ids]:
        """Returns the channel groups of a family along its weights, its source's first."""
        return [self._row(family, place) for place in (family.source, *dict(family.places))]

    def _row(self, family: Family, place: Place) -> Ids:
        """Returns the channel groups of a family along a weight's axis."""
        row = self.roots[self.trace.weights[place[0]][place[1]]]
        return row[np.isin(row, np.array(family.roots))]

    def _count_places(self, roots: Ids, members: set[int]) -> tuple[tuple[Place, int], ...] | None:
        """Returns how many indices each group has where; None where one has others than another."""
        places = {}
        for name, axes in self.trace.weights.items():
            for axis, ids in axes.items():
                counts = Counter(root for root in roots[ids].tolist() if root in members)
                if not counts:
                    continue
                if counts.keys() != members or len(set(counts.values())) > 1:
                    return None
                places[name, axis] = next(iter(counts.values()))
        return tuple(sorted(places.items()))


def find_families(trace: Trace, stages: Sequence[Stage] = ()) -> Channels:
    """Solves the ties of a trace.

    Args:
        trace: what was followed.
        stages: channels that leave as one family each.
    """
    roots, reasons = trace.sets.solve()
    staged = {root for stage in stages for root in stage.members}
    if staged:
        apart, _ = trace.sets.solve(with_counts=False)
        roots = np.where(np.isin(apart, list(staged)), apart, roots)
    inexact = _find_inexact(trace, roots)
    families, alone = [], _left_alone(trace, roots, reasons)
    producers = _producing_places(trace)
    for shared, members in _group_alike(trace, roots, reasons.keys() | staged):
        place = _producer(shared, producers)
        if place is None:
            continue
        if len(members) < 2:
            alone.append(LeftAlone(place[0], dict(shared)[place], TIED_TOGETHER))
            continue
        if all(name in trace.unneeded for (name, _), _ in shared):
            alone.append(LeftAlone(place[0], dict(shared)[place] * len(members), NOT_NEEDED))
            continue
        is_exact = not set(members) & inexact
        families.append(Family(place[0], place, tuple(members), shared, is_exact))
    if stages:
        families += _staged_families(stages, producers, inexact)
        families.sort(key=lambda family: producers.index(family.source))
    alone += _other_weights(trace, roots, reasons, families)
    counted = _count_rests(trace, roots, families)
    return Channels(trace, roots, _name_apart(counted), tuple(alone))


def _group_alike(trace: Trace, roots: Ids, others: set[int]) -> list[tuple[Kind, list[int]]]:
    """Returns the channel groups of layers by the places, and parts of cuts, that they are in.

    Args:
        trace: what was followed.
        roots: the channel group of each id.
        others: groups that are left out.
    """
    places: dict[int, list[tuple[Place, int]]] = {}
    first_index: dict[int, int] = {}
    for name, axes in trace.weights.items():
        for axis, ids in axes.items():
            for root, count in Counter(roots[ids].tolist()).items():
                places.setdefault(root, []).append(((name, axis), count))
            for index, root in enumerate(roots[ids].tolist()):
                first_index.setdefault(root, index)
    used = {int(root) for layer in trace.layers for root in np.unique(roots[layer.outputs])}
    parts = _parts_of_cuts(trace, roots)
    alike: dict[tuple[Kind, tuple[int, ...]], list[int]] = {}
    for root, found in places.items():
        if root in used and root not in others:
            key = tuple(sorted(found)), tuple(parts.get(root, ()))
            alike.setdefault(key, []).append(root)
    return [
        (kind, sorted(members, key=lambda root: first_index[root]))
        for (kind, _), members in alike.items()
    ]


def _staged_families(
    stages: Sequence[Stage], producers: list[Place], inexact: set[int]
) -> list[Family]:
    """Returns a family for each stage whose channels may take each other's places."""
    found = []
    for stage in stages:
        place = _producer(stage.places, producers)
        if place is not None:
            is_exact = not inexact & set(stage.members)
            members, places = stage.members, stage.places
            found.append(Family(place[0], place, members, places, is_exact, stage))
    return found


def _count_rests(trace: Trace, roots: Ids, families: list[Family]) -> list[Family]:
    """Returns the families with the channels that stay beside them (code that reads `x[:, :1]`)."""
    free = np.array(sorted({root for family in families for root in family.roots}))
    rests = {
        (name, axis): int(ids.size - np.isin(roots[ids], free).sum())
        for name, axes in trace.weights.items()
        for axis, ids in axes.items()
    }
    return [
        replace(family, rest=min(rests[place] for place, _ in family.places)) for family in families
    ]


def _find_inexact(trace: Trace, roots: Ids) -> set[int]:
    """Returns the channel groups over which a normalization or a mean computes."""
    return {
        int(root)
        for statistic in trace.statistics
        for ids in statistic.axes.values()
        for root in np.unique(roots[ids])
    }


def _parts_of_cuts(trace: Trace, roots: Ids) -> dict[int, list[int]]:
    """Returns per channel group the numbers of the unequal parts that it is in."""
    parts: dict[int, list[int]] = {}
    for number, ids in enumerate(trace.cuts):
        for root in np.unique(roots[ids]).tolist():
            parts.setdefault(root, []).append(number)
    return parts


def _producing_places(trace: Trace) -> list[Place]:
    """Lists the weights with the axis of their outputs, in the network's order."""
    return [
        (name, axis)
        for name, axes in trace.weights.items()
        for axis, ids in axes.items()
        if any(layer.weight == name and np.isin(layer.outputs, ids).all() for layer in trace.layers)
    ]


def _producer(shared: tuple[tuple[Place, int], ...], producers: list[Place]) -> Place | None:
    """Returns the first weight, in the network's order, whose outputs these channels are."""
    return next((place for place in producers if place in dict(shared)), None)


def _name_apart(families: list[Family]) -> tuple[Family, ...]:
    """Numbers the families that the outputs of one weight are divided into."""
    seen: Counter[str] = Counter()
    named = []
    for family in families:
        part = seen[family.name]
        seen[family.name] += 1
        named.append(replace(family, name=f"{family.name}[{part}]") if part else family)
    return tuple(named)


def _left_alone(trace: Trace, roots: Ids, reasons: dict[int, str]) -> list[LeftAlone]:
    alone: dict[tuple[str, str], set[int]] = {}
    for layer in trace.layers:
        for index, root in enumerate(roots[layer.outputs].tolist()):
            if root in reasons and root != FIXED and layer.weight:
                alone.setdefault((layer.weight, reasons[root]), set()).add(index)
    return [LeftAlone(name, len(found), reason) for (name, reason), found in alone.items()]


def _other_weights(
    trace: Trace, roots: Ids, reasons: dict[int, str], families: list[Family]
) -> list[LeftAlone]:
    """Lists the channels of parameters that no layer has as its weight, where no family has them.

    A bias or a scale (one axis) is left out: it follows the channels that it is combined with. So
    are the rows that a table picks (a bias for each relative position of an attention): they are
    positions.
    """
    named = {layer.weight for layer in trace.layers}
    prunable = {root for family in families for root in family.roots}
    alone: dict[tuple[str, str], int] = {}
    for name in trace.parameters - named:
        axes = trace.weights[name].values()
        for ids in axes if len(axes) > 1 else ():
            left = [
                root
                for root in roots[ids].tolist()
                if root not in prunable and not reasons.get(root, "").endswith(PICKED_BY_TABLE)
            ]
            unknown = _say_why_unknown(trace, name)
            why = Counter(reasons.get(root, unknown) for root in left if ids.size > 1)
            for reason, count in why.items():
                alone[name, reason] = max(count, alone.get((name, reason), 0))
    return [LeftAlone(name, count, reason) for (name, reason), count in sorted(alone.items())]


def _say_why_unknown(trace: Trace, name: str) -> str:
    """Returns why a parameter has channels that no layer of the first run makes."""
    if name in trace.used:
        return _NO_LAYER
    is_in_branch = any(name in branch.trace.used for branch in trace.branches)
    return _IN_BRANCH if is_in_branch else _NOT_USED
