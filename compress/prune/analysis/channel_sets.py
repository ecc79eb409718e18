"""Sets of channels that must leave together, and those that must stay."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
FIXED = 0
"""The id of a position that is no channel of any weight and never leaves."""


class ChannelSets:
    """Disjoint sets over channel ids; ties are collected and joined all at once by `solve`.

    An id stands for one index along one axis of one weight. Id 0 stands for what always stays.
    """

    def __init__(self) -> None:
        self._count = 1
        self._left: list[Ids] = []
        self._right: list[Ids] = []
        self._is_count: list[bool] = []
        self._frozen: list[tuple[Ids, str]] = []

    def add_ids(self, count: int) -> Ids:
        """Returns `count` new ids, each a set of its own."""
        ids = np.arange(self._count, self._count + count, dtype=np.int64)
        self._count += count
        return ids

    def tie(self, left: Ids, right: Ids, reason: str, *, is_count: bool = False) -> None:
        """Joins ids pairwise (with broadcasting); one that meets `FIXED` is frozen.

        Args:
            left: ids.
            right: ids, of a shape that broadcasts with `left`.
            reason: why those that meet `FIXED` must stay.
            is_count: whether only as many have to leave on both sides, so that others than these
                pairs might, where the weights around are put in another order.
        """
        first, second = np.broadcast_arrays(left, right)
        first, second = first.reshape(-1), second.reshape(-1)
        differs = first != second
        first, second = first[differs], second[differs]
        self.freeze(first[second == FIXED], reason)
        self.freeze(second[first == FIXED], reason)
        free = (first != FIXED) & (second != FIXED)
        if free.any():
            self._left.append(first[free])
            self._right.append(second[free])
            self._is_count.append(is_count)

    def join_counted(self) -> Ids:
        """Returns the representative of each id's set, where channels that are counted are one."""
        roots, _ = self.solve()
        for index, is_count in enumerate(self._is_count):
            if is_count:
                together = np.concatenate([self._left[index], self._right[index]])
                roots = join_sets(
                    roots, together[1:], np.broadcast_to(together[:1], together[1:].shape)
                )
        return roots

    def freeze(self, ids: Ids, reason: str) -> None:
        """Keeps the sets of these ids whole, and remembers why."""
        kept = ids[ids != FIXED]
        if kept.size:
            self._frozen.append((kept.copy(), reason))

    def solve(self, *, with_counts: bool = True) -> tuple[Ids, dict[int, str]]:
        """Returns the representative of each id's set, and per frozen set the first reason.

        Args:
            with_counts: whether ties of which only the number counts are ties too.
        """
        roots = np.arange(self._count, dtype=np.int64)
        chosen = [
            index for index, is_count in enumerate(self._is_count) if with_counts or not is_count
        ]
        if chosen:
            left = np.concatenate([self._left[index] for index in chosen])
            roots = join_sets(roots, left, np.concatenate([self._right[index] for index in chosen]))
        reasons: dict[int, str] = {FIXED: "no channel of a weight"}
        for ids, reason in self._frozen:
            for root in np.unique(roots[ids]):
                reasons.setdefault(int(root), reason)
        return roots, reasons


def join_sets(roots: Ids, left: Ids, right: Ids) -> Ids:
    """Joins sets pairwise; returns the representative of each id's set, as a new array.

    Connected components by hooking to the smaller root and pointer jumping.
    """
    roots = roots.copy()
    while True:
        a, b = roots[left], roots[right]
        open_pairs = a != b
        if not open_pairs.any():
            return roots
        left, right = left[open_pairs], right[open_pairs]
        a, b = a[open_pairs], b[open_pairs]
        np.minimum.at(roots, np.maximum(a, b), np.minimum(a, b))
        while True:
            jumped = roots[roots]
            if np.array_equal(jumped, roots):
                break
            roots = jumped
