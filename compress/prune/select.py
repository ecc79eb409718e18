"""Chooses which channel groups leave: the least important ones for what they cost."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from compress.prune.analysis.families import Channels, Family
from compress.prune.cost import Cost

LOOK_AHEAD = 6
"""How many narrower widths are weighed at once, to see past a plateau of the measured time."""
FINEST_SHARE = 32
LAST_STEPS = 4
"""So many ways to reach the goal are compared, each without the last steps of those before."""


@dataclass(frozen=True, kw_only=True)
class WidthLimits:
    """Which widths a feature map may get.

    Attributes:
        round_to: channel counts are multiples of this where they change: 8, 16 or 32 on most
            targets, 1 for any.
        fewest: no feature map gets narrower than this many channels.
    """

    round_to: int = 8
    fewest: int = 8

    def __post_init__(self) -> None:
        if self.round_to < 1 or self.fewest < 1:
            raise InputError(f"--round-to {self.round_to}", "1, 8, 16 or 32")

    def widths(self, family: Family) -> list[int]:
        """Returns how many groups a family may keep, most first; the first is all of them.

        Channels that stay beside them count for `round_to`, where any width makes up for them.
        """
        round_widths = self._round_widths(family, family.rest)
        return [family.count, *(round_widths or self._round_widths(family, 0))]

    def _round_widths(self, family: Family, rest: int) -> list[int]:
        """Returns the narrower widths that are multiples of `round_to` with `rest` others."""
        count = family.count
        finest = max(1, count // FINEST_SHARE) if self.round_to == 1 else 1
        fewest = -(-(min(self.fewest, count * family.width + rest) - rest) // family.width)
        return [
            kept
            for kept in range(count - 1, max(1, fewest) - 1, -1)
            if (kept * family.width + rest) % self.round_to == 0
            and ((count - kept) % finest == 0 or family.stage is not None)
            and family.allows(kept)
        ]


@dataclass(frozen=True)
class Selection:
    """What leaves.

    Attributes:
        removed: roots of the groups.
        kept: groups kept per family.
        cost: of what is left.
    """

    removed: set[int]
    kept: dict[str, int]
    cost: float


def rank_scores(
    channels: Channels, scores: NDArray[np.float64], ranking: str
) -> NDArray[np.float64]:
    """Makes scores comparable.

    Args:
        channels: the structure.
        scores: by id.
        ranking: "global" compares all groups; "isomorphic" (Fang et al., 2024) only those of
            feature maps that are made and used alike, so that each kind loses the same share.

    Raises:
        InputError: there is no such ranking.
    """
    if ranking == "global":
        return scores
    if ranking != "isomorphic":
        raise InputError(f"--ranking is '{ranking}'", "global or isomorphic")
    kinds: dict[tuple[str, ...], list[int]] = {}
    for family in channels.families:
        kind = tuple(sorted(_describe(channels, family)))
        kinds.setdefault(kind, []).extend(family.roots)
    ranked = scores.copy()
    for roots in kinds.values():
        order = np.argsort(np.argsort(scores[roots], kind="stable"), kind="stable")
        ranked[roots] = (order + 1) / len(roots)
    return ranked


def _describe(channels: Channels, family: Family) -> Iterable[str]:
    kinds = {layer.weight: layer.kind for layer in channels.trace.layers}
    return (f"{kinds.get(name, 'other')}/{axis}" for (name, axis), _ in family.places)


def select_groups(
    channels: Channels,
    scores: NDArray[np.float64],
    cost: Cost,
    goal: float,
    limits: WidthLimits,
) -> Selection:
    """Narrows feature maps, always where least importance is lost per cost saved.

    The last step may save more than was needed. What it left over is given back to the feature
    maps that gain most importance for it, and the goal is also reached without that step: what
    loses least importance is taken.

    Args:
        channels: the structure.
        scores: importance by id.
        cost: what to bring down.
        goal: the cost to reach.
        limits: which widths are allowed.

    Returns:
        the selection; its cost is above `goal` where the limits do not allow more.
    """
    lost = {family.name: _lost_importance(family, scores) for family in channels.families}
    widths = {family.name: limits.widths(family) for family in channels.families}
    narrowing = _Narrowing(channels, widths, lost, cost)
    kept = min(narrowing.list_ways(goal), key=narrowing.lost_importance)
    removed = {
        root for family in channels.families for root in family.leave(kept[family.name], scores)
    }
    return Selection(removed, kept, cost.total(kept))


def _lost_importance(family: Family, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns what a family has lost without so many of its groups; inf where it must not."""
    if family.stage is None:
        return np.concatenate([[0.0], np.cumsum(np.sort(scores[np.array(family.roots)]))])
    lost = np.full(family.count, np.inf)
    for kept in (family.count, *family.stage.layouts):
        lost[family.count - kept] = scores[list(family.leave(kept, scores))].sum()
    return lost


@dataclass(frozen=True)
class _Narrowing:
    """Narrows feature maps step by step.

    Attributes:
        channels: the structure.
        widths: that each family may have, most first.
        lost: importance that each family has lost without so many of its groups.
        cost: what to bring down.
    """

    channels: Channels
    widths: dict[str, list[int]]
    lost: dict[str, NDArray[np.float64]]
    cost: Cost

    def lost_importance(self, kept: dict[str, int]) -> float:
        """Returns the importance of all groups that are not kept."""
        return sum(
            float(self.lost[family.name][family.count - kept[family.name]])
            for family in self.channels.families
        )

    def list_ways(self, goal: float) -> list[dict[str, int]]:
        """Returns a few ways to reach the goal, groups kept per family; at least one.

        They differ in the family whose step reached it. Where the limits do not allow to reach it,
        all that they allow is the only way.
        """
        by_name = {family.name: family for family in self.channels.families}
        kept = {name: family.count for name, family in by_name.items()}
        total = self.cost.total(kept)
        if total <= goal:
            return [kept]
        moves = {name: self._best_move(by_name[name], kept) for name in kept}
        ways: list[dict[str, int]] = []
        while len(ways) < LAST_STEPS:
            ready = [(move, name) for name, move in moves.items() if move is not None]
            if not ready:
                break
            (_, fewest, saved), name = min(ready)
            family = by_name[name]
            if total - saved <= goal:
                fewer = self._just_enough(family, kept, fewest, total - goal)
                ways.append(self._give_back({**kept, name: fewer}, goal))
                del moves[name]
                continue
            total -= saved
            kept[name] = fewest
            for other in self.cost.neighbours(family) & moves.keys():
                moves[other] = self._best_move(by_name[other], kept)
        return ways or [kept]

    def _just_enough(self, family: Family, kept: dict[str, int], fewest: int, needed: float) -> int:
        """Returns the widest width down to `fewest` that saves what is needed, else `fewest`."""
        between = [w for w in self.widths[family.name] if fewest < w < kept[family.name]]
        return next((w for w in between if self.cost.saved(kept, family, w) >= needed), fewest)

    def _best_move(self, family: Family, kept: dict[str, int]) -> tuple[float, int, float] | None:
        """Returns (importance per cost, width, cost saved) of the best narrower width, if any."""
        now, count, lost = kept[family.name], family.count, self.lost[family.name]
        best = None
        for fewer in [w for w in self.widths[family.name] if w < now][:LOOK_AHEAD]:
            saved = self.cost.saved(kept, family, fewer)
            if saved <= 0:
                continue
            price = float(lost[count - fewer] - lost[count - now]) / saved
            if best is None or price < best[0]:
                best = (price, fewer, saved)
        return best

    def _give_back(self, kept: dict[str, int], goal: float) -> dict[str, int]:
        """Returns wider feature maps, as long as the goal is kept."""
        kept, left = dict(kept), goal - self.cost.total(kept)
        while True:
            best = None
            for family in self.channels.families:
                name, now, lost = family.name, kept[family.name], self.lost[family.name]
                for wider in [w for w in self.widths[name] if w > now][-LOOK_AHEAD:]:
                    extra = -self.cost.saved(kept, family, wider)
                    if not 0 < extra <= left:
                        continue
                    count = family.count
                    gained = float(lost[count - now] - lost[count - wider]) / extra
                    if best is None or gained > best[0]:
                        best = (gained, name, wider, extra)
            if best is None:
                return kept
            _, name, kept[name], extra = best
            left -= extra


def find_floor(channels: Channels, cost: Cost, limits: WidthLimits) -> Selection:
    """Returns what is left where every feature map is as narrow as the limits allow."""
    kept = {family.name: limits.widths(family)[-1] for family in channels.families}
    removed = {root for one in channels.families for root in one.leave(kept[one.name])}
    return Selection(removed, kept, cost.total(kept))
