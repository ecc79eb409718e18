"""Optimal assignment of rows to columns, where leaving a pair unmatched is allowed.

Written here because the vehicle installs no scipy. Pairs that compete with nobody are matched at
once; only true conflicts reach the O(n^3) solver, so a frame's usual cost is linear.
"""

import numpy as np
from numpy.typing import NDArray


def assign_pairs(cost: NDArray[np.float64], limit: float) -> NDArray[np.int64]:
    """Chooses the pairs whose summed cost is least, a row or column left alone costing `limit`.

    A pair at or above `limit` is never chosen: parting it is as good. So the result minimises
    sum(cost - limit) over the chosen pairs.

    Args:
        cost: [R, C]; infinity forbids a pair.
        limit: cost from which a pair is not worth making.

    Returns:
        [P, 2] row and column of each pair, by rising row.
    """
    allowed = cost < limit
    per_row, per_column = allowed.sum(axis=1), allowed.sum(axis=0)
    is_alone = allowed & (per_row[:, None] == 1) & (per_column[None, :] == 1)
    rows, columns = np.nonzero(is_alone)
    left_rows = np.flatnonzero((per_row > 0) & ~is_alone.any(axis=1))
    left_columns = np.flatnonzero((per_column > 0) & ~is_alone.any(axis=0))
    if len(left_rows) and len(left_columns):
        contested = np.minimum(cost[np.ix_(left_rows, left_columns)], limit)
        picked_rows, picked_columns = _solve(contested)
        is_worth = contested[picked_rows, picked_columns] < limit
        rows = np.concatenate([rows, left_rows[picked_rows[is_worth]]])
        columns = np.concatenate([columns, left_columns[picked_columns[is_worth]]])
    order = np.argsort(rows)
    return np.stack([rows[order], columns[order]], axis=1).astype(np.int64)


def _solve(cost: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns rows and columns of the least-cost full assignment of the shorter side.

    Where every row's cheapest column is another one, those pairs are the answer.
    """
    if cost.shape[0] > cost.shape[1]:
        columns, rows = _solve(cost.T)
        return rows, columns
    cheapest = cost.argmin(axis=1)
    if np.bincount(cheapest).max() == 1:
        return np.arange(len(cheapest)), cheapest
    return _augment_rows(cost)


def _augment_rows(cost: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Adds the rows one by one, each by the cheapest alternating path (Dijkstra on reduced costs).

    The shortest augmenting path method of Jonker and Volgenant (1987): the potentials u, v keep
    cost - u - v >= 0, and 0 on chosen pairs.
    """
    row_count, column_count = cost.shape
    u, v = np.zeros(row_count), np.zeros(column_count)
    row_of = np.full(column_count, -1, np.int64)
    for start in range(row_count):
        distance = np.full(column_count, np.inf)
        previous = np.full(column_count, -1, np.int64)
        is_done = np.zeros(column_count, bool)
        row, column, reached = start, -1, 0.0
        while row >= 0:
            through = reached + cost[row] - u[row] - v
            is_shorter = ~is_done & (through < distance)
            distance[is_shorter] = through[is_shorter]
            previous[is_shorter] = column
            column = int(np.argmin(np.where(is_done, np.inf, distance)))
            reached, row = float(distance[column]), int(row_of[column])
            is_done[column] = True
        inner = np.flatnonzero(is_done & (row_of >= 0))
        u[start] += reached
        u[row_of[inner]] += reached - distance[inner]
        v[is_done] -= reached - distance[is_done]
        while column >= 0:
            before = int(previous[column])
            row_of[column] = row_of[before] if before >= 0 else start
            column = before
    columns = np.flatnonzero(row_of >= 0)
    return row_of[columns], columns
