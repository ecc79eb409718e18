"""Percentiles by nearest rank, and what n frames with t misses prove.

All bounds are exact order statistics of independent frames: with q the chance that a frame misses,
"P99 <= B" holds at confidence 1 - alpha when P[Bin(n, 0.01) <= t] <= alpha. MLPerf's LoadGen uses
the same mathematics for its early stopping.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from artifacts.errors import InputError
from latency_budget.binomial import (
    binomial_cdf,
    binomial_cdf_table,
    binomial_quantile,
    binomial_tail,
)
from latency_budget.run import DROPPED_NS, Nanoseconds

_TICKS = 64
_MANY_FRAMES = 10_000
"""Of a fine clock these show already that its times are too many to be ticks."""
_TICKING_FRAMES = 100
"""So many frames, in so few different times, show a clock's tick."""


def exact_quantile(quantile: float) -> Fraction:
    """Returns a quantile as the fraction that was written, 0.999 as 999/1000.

    Raises:
        InputError: it is not strictly between 0 and 1.
    """
    if not 0 < quantile < 1:
        raise InputError(f"quantile is {quantile}", "a number between 0 and 1, such as 0.99")
    return Fraction(str(quantile)).limit_denominator(10_000_000)


def nearest_rank(count: int, quantile: float) -> int:
    """Returns the 1-based rank ceil(quantile * count), in integers."""
    return max(1, math.ceil(exact_quantile(quantile) * count))


def samples_needed(quantile: float) -> int:
    """Returns from how many samples on a percentile is more than their maximum or a guess."""
    share = exact_quantile(quantile)
    return math.ceil(1 / min(share, 1 - share))


def percentile_ns(sorted_ns: Nanoseconds, quantile: float) -> int | None:
    """Returns a percentile by nearest rank: a latency that really happened.

    Args:
        sorted_ns: [n] ascending, `DROPPED_NS` for dropped frames.
        quantile: between 0 and 1.

    Returns:
        nanoseconds; None with too few samples, or where the rank falls on a dropped frame.
    """
    if len(sorted_ns) < samples_needed(quantile):
        return None
    value = int(sorted_ns[nearest_rank(len(sorted_ns), quantile) - 1])
    return None if value == DROPPED_NS else value


def upper_bound_rank(count: int, quantile: float, confidence: float) -> int | None:
    """Returns the 1-based rank of the upper confidence bound of a percentile.

    Returns:
        `binom.ppf(confidence, n, quantile) + 1`, or None where n is too small for a bound.
    """
    rank = binomial_quantile(confidence, count, quantile) + 1
    return rank if rank <= count else None


def lower_bound_rank(count: int, quantile: float, confidence: float) -> int | None:
    """Returns the 1-based rank of the lower confidence bound of a percentile, None if too few."""
    rank = binomial_quantile(1.0 - confidence, count, quantile)
    return rank if rank >= 1 else None


def bound_ns(
    sorted_ns: Nanoseconds, quantile: float, confidence: float, *, upper: bool
) -> int | None:
    """Returns the confidence bound of a percentile in nanoseconds.

    Returns:
        None with too few samples, or where the bound falls on a dropped frame.
    """
    find = upper_bound_rank if upper else lower_bound_rank
    rank = find(len(sorted_ns), quantile, confidence)
    if rank is None or int(sorted_ns[rank - 1]) == DROPPED_NS:
        return None
    return int(sorted_ns[rank - 1])


def find_step(times: Nanoseconds) -> int:
    """Returns by how much a column's times may be off, in ns: its last digit or its tick."""
    return max(find_last_digit(times), _find_tick(times))


def find_last_digit(times: Nanoseconds) -> int:
    """Returns the last digit that a column was written with, in ns: at most 1 ms.

    A float32 has 24 binary digits, too few for a nanosecond from 17 ms on; a sum loses one or two.
    """
    largest = int(times.max(initial=0))
    common = int(np.gcd.reduce(times)) if largest else 1
    step = 1
    while step < 1_000_000 and common % (10 * step) == 0:
        step *= 10
    return max(step, largest >> 22)


def _find_tick(times: Nanoseconds) -> int:
    """Returns the tick of a clock of which all times are small multiples, 1 where there is none.

    Timers of 4, 15.6 or 16.7 ms (a kernel's, Windows', a display's) show in few different times,
    whatever the digits with which they were written.
    """
    if len(np.unique(times[:_MANY_FRAMES])) > _TICKS + 1:
        return 1
    values = np.unique(times[times > 0])
    if len(times) < _TICKING_FRAMES or not 2 <= len(values) <= _TICKS:
        return 1
    tick = int(np.diff(values).min())
    strays = np.abs(values - np.round(values / tick) * tick)
    return tick if strays.max() <= tick / 1000 else 1


def frames_needed(misses: int, quantile: float, confidence: float) -> int:
    """Returns the fewest frames that prove a percentile claim with so many misses among them."""
    alpha, chance = 1.0 - confidence, 1.0 - quantile
    low, high = misses, max(2, 2 * misses + 2)
    while binomial_cdf(misses, high, chance) > alpha:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if binomial_cdf(misses, middle, chance) > alpha:
            low = middle
        else:
            high = middle
    return high


def misses_allowed(count: int, quantile: float, confidence: float) -> int | None:
    """Returns how many of `count` frames may miss, None where even zero misses prove nothing."""
    table = binomial_cdf_table(count, 1.0 - quantile, count)
    allowed = int(np.searchsorted(table, 1.0 - confidence, side="right")) - 1
    return allowed if allowed >= 0 else None


@dataclass(frozen=True)
class Claim:
    """What the frames say about "this percentile is within the limit".

    Attributes:
        outcome: "pass", "fail" (the opposite is proven) or "inconclusive".
        misses: frames over the limit, dropped ones included.
        count: all frames.
        more_frames: frames without a miss that would still be needed for a pass.
    """

    outcome: str
    misses: int
    count: int
    more_frames: int


def claim_percentile(misses: int, count: int, quantile: float, confidence: float) -> Claim:
    """Judges the claim "the percentile is within the limit" from the misses of a fixed run.

    The claim passes when a miss rate of 1 - quantile is refuted from above, fails when it is
    refuted from below, and is inconclusive between the two.
    """
    alpha, chance = 1.0 - confidence, 1.0 - quantile
    more = max(0, frames_needed(misses, quantile, confidence) - count)
    if count and not more and binomial_cdf(misses, count, chance) <= alpha:
        return Claim("pass", misses, count, 0)
    if count and misses and binomial_tail(misses, count, chance) <= alpha:
        return Claim("fail", misses, count, more)
    return Claim("inconclusive", misses, count, more)


@dataclass(frozen=True)
class RatioClaim:
    """What the frames say about P99/P50.

    Attributes:
        outcome: "pass", "fail" or "inconclusive".
        ratio: P99/P50 by nearest rank, None with too few samples.
        upper: upper 95 % bound of the ratio, None where there is none.
        lower: lower 95 % bound of the ratio.
        spread_ns: P99 - P50.
        more_frames: frames still needed before an upper bound exists.
    """

    outcome: str
    ratio: float | None
    upper: float | None
    lower: float | None
    spread_ns: int | None
    more_frames: int


def claim_ratio(
    sorted_ns: Nanoseconds,
    limit: float,
    *,
    confidence: float = 0.95,
    floor_ns: int = 0,
    later_ns: int = 0,
) -> RatioClaim:
    """Judges P99/P50 < limit by a joint bound: half of alpha for each of the two percentiles.

    The ratio alone can be improved by getting slower, so it says something only beside the claim
    on P99, and it punishes very fast models, hence the floor.

    Args:
        sorted_ns: [n] ascending latencies, `DROPPED_NS` for dropped frames.
        limit: of the ratio.
        confidence: of both bounds together.
        floor_ns: a P99 that is surely less than this above P50 passes whatever the ratio.
        later_ns: added to the bounds of P99 and taken from those of P50, for times that are only
            known to so much.
    """
    each = 1.0 - (1.0 - confidence) / 2
    p50, p99 = percentile_ns(sorted_ns, 0.5), percentile_ns(sorted_ns, 0.99)
    high99 = bound_ns(sorted_ns, 0.99, each, upper=True)
    low99 = bound_ns(sorted_ns, 0.99, each, upper=False)
    low50 = bound_ns(sorted_ns, 0.5, each, upper=False)
    high50 = bound_ns(sorted_ns, 0.5, each, upper=True)
    upper = lower = None
    if high99 and low50 and low50 > later_ns:
        upper = (high99 + later_ns) / (low50 - later_ns)
    if low99 and high50 and high50 > later_ns:
        lower = max(0, low99 + later_ns) / (high50 - later_ns)
    within_floor = bool(high99 and low50 and high99 - low50 + 2 * later_ns <= floor_ns)
    if within_floor or (upper is not None and upper < limit):
        outcome = "pass"
    elif (
        lower is not None
        and lower >= limit
        and not (p50 and p99 and p99 - p50 + 2 * later_ns <= floor_ns)
    ):
        outcome = "fail"
    else:
        outcome = "inconclusive"
    return RatioClaim(
        outcome=outcome,
        ratio=p99 / p50 if p99 and p50 else None,
        upper=upper,
        lower=lower,
        spread_ns=p99 - p50 if p99 and p50 else None,
        more_frames=max(0, frames_needed(0, 0.99, each) - len(sorted_ns)),
    )


def stage_quantile(stages: int, quantile: float = 0.99) -> float:
    """Returns the quantile at which each of k stages must keep its budget.

    P(sum of stages > sum of budgets) <= sum of P(stage > its budget), whatever the dependence, so
    k stages proven at 1 - (1 - quantile) / k imply the frame's quantile.
    """
    return float(1 - (1 - exact_quantile(quantile)) / max(1, stages))
