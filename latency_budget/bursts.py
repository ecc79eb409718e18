"""Misses that come in bursts: the cluster bound and the longest run."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latency_budget.binomial import gamma_quantile

MERGE_FRAMES = 30
WORST_BURST_FRAMES = 30


@dataclass(frozen=True)
class BurstBound:
    """Bounds of the miss rate when misses cluster.

    Attributes:
        rate: the upper bound, at the confidence asked for; above 1 with a handful of frames.
        lower_rate: the lower bound, at the same confidence.
        clusters: groups of misses no more than 30 frames apart.
        burst_frames: size-weighted mean size of a cluster, 30 where there was no miss.
    """

    rate: float
    lower_rate: float
    clusters: int
    burst_frames: float

    def count_missing(self, limit: float, frames: int) -> int:
        """Returns how many more frames without a miss bring the upper bound below a limit.

        Args:
            limit: of the miss rate.
            frames: measured so far.
        """
        return math.floor(self.rate / limit * frames) + 1 - frames


def longest_run(misses: NDArray[np.bool_]) -> int:
    """Returns the most consecutive misses: what the vehicle's controller feels."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], misses, [False]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max()) if len(edges) else 0


def find_clusters(misses: NDArray[np.bool_], merge_frames: int = MERGE_FRAMES) -> list[int]:
    """Returns the number of misses in each cluster, merging those `merge_frames` apart or less."""
    positions = np.flatnonzero(misses)
    if not len(positions):
        return []
    cuts = np.flatnonzero(np.diff(positions) > merge_frames) + 1
    return [len(part) for part in np.split(positions, cuts)]


def bound_miss_rate(
    misses: NDArray[np.bool_],
    *,
    confidence: float = 0.95,
    worst_burst_frames: int = WORST_BURST_FRAMES,
) -> BurstBound:
    """Bounds the miss rate from above and from below as if each cluster were one event.

    With clusters of z_j misses, s = mean(z^2) / mean(z) and t misses in n frames,
    q <= chi2.ppf(confidence, 2 (t / s + 1)) / 2 * s / n, and
    q >= chi2.ppf(1 - confidence, 2 t / s) / 2 * s / n. An approximation: at a true 1 % in bursts
    of ten it passes 5.5 % of runs of 54 000 frames (simulated), where the independent claim
    passes 38 %. A run with a miss is bounded no lower than one without, whose worst burst is
    declared: one short burst does not show that there are no long ones.
    """
    sizes = np.asarray(find_clusters(misses), np.float64)
    total, count = float(sizes.sum()), max(1, len(misses))
    without_miss = gamma_quantile(confidence, 1.0) * worst_burst_frames / count
    if not total:
        return BurstBound(without_miss, 0.0, 0, float(worst_burst_frames))
    burst = float((sizes**2).mean() / sizes.mean())
    upper = gamma_quantile(confidence, total / burst + 1) * burst / count
    lower = gamma_quantile(1.0 - confidence, total / burst) * burst / count
    return BurstBound(max(upper, without_miss), lower, len(sizes), burst)
