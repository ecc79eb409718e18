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
        """Returns how many groups a family may keep, most first; the first is all of them."""
        count = len(family.roots)
        finest = max(1, count // FINEST_SHARE) if self.round_to == 1 else 1
        fewest = max(1, -(-min(self.fewest, count * family.width) // family.width))
        return [count] + [
            kept
            for kept in range(count - 1, fewest - 1, -1)
            if kept * family.width % self.round_to == 0 and (count - kept) % finest == 0
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

    Args:
        channels: the structure.
        scores: importance by id.
        cost: what to bring down.
        goal: the cost to reach.
        limits: which widths are allowed.

    Returns:
        the selection; its cost is above `goal` where the limits do not allow more.
    """
    order = {
        family.name: sorted(family.roots, key=lambda root: (scores[root], root))
        for family in channels.families
    }
    lost = {
        name: np.concatenate([[0.0], np.cumsum(scores[roots])]) for name, roots in order.items()
    }
    widths = {family.name: limits.widths(family) for family in channels.families}
    kept = {family.name: len(family.roots) for family in channels.families}
    by_name = {family.name: family for family in channels.families}
    total = cost.total(kept)
    moves = {name: _best_move(by_name[name], kept, widths[name], lost[name], cost) for name in kept}
    while total > goal:
        ready = [(move[0], name) for name, move in moves.items() if move is not None]
        if not ready:
            break
        _, name = min(ready)
        move = moves[name]
        if move is None:
            break
        family = by_name[name]
        fewer = _just_enough(family, kept, widths[name], move[1], cost, total - goal)
        total -= cost.saved(kept, family, fewer)
        kept[name] = fewer
        for other in cost.neighbours(family):
            moves[other] = _best_move(by_name[other], kept, widths[other], lost[other], cost)
    removed = {
        root for name, count in kept.items() for root in order[name][: len(order[name]) - count]
    }
    return Selection(removed, kept, cost.total(kept))


def _just_enough(
    family: Family, kept: dict[str, int], widths: list[int], fewest: int, cost: Cost, needed: float
) -> int:
    """Returns the widest width down to `fewest` that saves what is needed, else `fewest`."""
    between = [width for width in widths if fewest < width < kept[family.name]]
    return next((wide for wide in between if cost.saved(kept, family, wide) >= needed), fewest)


def _best_move(
    family: Family,
    kept: dict[str, int],
    widths: list[int],
    lost: NDArray[np.float64],
    cost: Cost,
) -> tuple[float, int, float] | None:
    """Returns (importance per cost, width, cost saved) of the best narrower width, if any saves."""
    now = kept[family.name]
    best = None
    for fewer in [width for width in widths if width < now][:LOOK_AHEAD]:
        saved = cost.saved(kept, family, fewer)
        if saved <= 0:
            continue
        count = len(family.roots)
        price = float(lost[count - fewer] - lost[count - now]) / saved
        if best is None or price < best[0]:
            best = (price, fewer, saved)
    return best


def find_floor(channels: Channels, cost: Cost, limits: WidthLimits) -> Selection:
    """Returns what is left where every feature map is as narrow as the limits allow."""
    kept = {family.name: limits.widths(family)[-1] for family in channels.families}
    removed = {root for family in channels.families for root in family.roots[kept[family.name] :]}
    return Selection(removed, kept, cost.total(kept))
