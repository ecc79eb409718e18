"""Has the run settled? Steps and drift of the frame's service time, over blocks of frames.

A just-in-time compiler, a warming processor or a growing heap changes what a frame costs while it
is measured; a percentile over such a run describes no state of the machine. The medians of 30-frame
blocks are cut into level pieces by Potts' functional with an absolute-error cost (Storath,
Weinmann, Demaret, "Jump-Sparse and Sparse Recovery Using Potts Functionals", IEEE TSP 2014), and
the last piece must be long and level. Some processes never settle (Barrett et al., arXiv
1602.00602): that is an answer too.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from latency_budget.run import Nanoseconds
from latency_budget.statistics import find_last_digit

BLOCK_FRAMES = 30
FEWEST_BLOCKS = 8
STEADY_SHARE = 0.7
STEP_SHARE = 0.01
STEP_MADS = 3.0
SLOPE_SHARE_PER_MIN = 0.005
WANDER_SHARE = 0.03
WANDER_SIGMAS = 3.0
_LARGEST_BLOCKS = 400
_PENALTY = 4.0
_MAD_TO_SIGMA = 1.4826
_TRIMMED_TO_SIGMA = 0.79
_SURE_SIGMAS = 4.0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Steadiness:
    """Whether a run settled.

    Attributes:
        outcome: "steady", "unsteady" or "unknown" (too few frames to tell).
        first: number of the first frame of the steady part; frames before it are a warm-up that
            took longer than was allowed for.
        detail: one line.
    """

    outcome: str
    first: int
    detail: str


def find_steady(service_ns: Nanoseconds, seconds_per_frame: float) -> Steadiness:
    """Finds the steady part of a run of one process.

    Args:
        service_ns: [n] from the start of each processed frame to its result.
        seconds_per_frame: for the drift per minute.
    """
    size = max(BLOCK_FRAMES, math.ceil(len(service_ns) / _LARGEST_BLOCKS))
    count = len(service_ns) // size
    if count < FEWEST_BLOCKS:
        known = "1 frame is" if len(service_ns) == 1 else f"{len(service_ns)} frames are"
        return Steadiness("unknown", 0, f"{known} too few to tell")
    frames = service_ns[: count * size].reshape(count, size)
    blocks = _block_medians(frames, service_ns)
    if float(np.median(blocks)) <= 0:
        return Steadiness("unknown", 0, "most frames took no time")
    noise = max(_noise(blocks), _noise_within(frames))
    starts = segment_levels(blocks, noise)
    levels = [float(np.median(part)) for part in np.split(blocks, starts[1:])]
    tolerance = _tolerance(blocks, noise)
    first = len(levels) - 1
    while first and abs(levels[first - 1] - levels[-1]) <= tolerance:
        first -= 1
    begin = starts[first]
    step = max((abs(a - b) for a, b in pairwise(levels)), default=0.0)
    if count - begin < STEADY_SHARE * count:
        share = step / float(np.median(blocks))
        return Steadiness(
            "unsteady",
            begin * size,
            f"level only for the last {(count - begin) * size} of {len(service_ns)} frames; "
            f"largest step {share:.1%}",
        )
    drift = _drift_per_minute(blocks[begin:], size * seconds_per_frame, tolerance)
    if drift is not None:
        return Steadiness("unsteady", begin * size, f"drifts by {drift:+.1%} per minute")
    wander = _wander(blocks[begin:], noise)
    if wander is not None:
        return Steadiness("unsteady", begin * size, f"wanders by {wander:.1%} (one sigma)")
    trimmed = f", from frame {begin * size} on" if begin else ""
    return Steadiness("steady", begin * size, f"level over {count - begin} blocks{trimmed}")


def _block_medians(blocks: Nanoseconds, times: Nanoseconds) -> Floats:
    """Returns the median of each block; of times in coarse steps, where it lies within its step.

    A median between two ticks of a coarse clock falls on the one in one block and on the other in
    the next, a step of 4 % for 25 ms in whole milliseconds. The share of a block below its middle
    tick says where between the ticks the median is (the median of grouped data).
    """
    step, size = find_last_digit(times), blocks.shape[1]
    middle = np.sort(blocks, axis=1)[:, size // 2, None]
    below, equal = (blocks < middle).sum(axis=1), (blocks == middle).sum(axis=1)
    medians: Floats = middle[:, 0] + step * ((size / 2 - below) / equal - 0.5)
    return medians


def segment_levels(blocks: Floats, noise: float | None = None) -> list[int]:
    """Returns where the level pieces of `blocks` begin, the first one at 0.

    Minimizes the sum of absolute errors to each piece's median plus a penalty per piece, by
    dynamic programming; the penalty is four times the noise of a block times the logarithm of
    their number.

    Args:
        blocks: [n] medians of blocks.
        noise: standard deviation of a block around its level; estimated from the differences of
            neighbours where it is not given.
    """
    count = len(blocks)
    noise = _noise(blocks) if noise is None else noise
    penalty = _PENALTY * noise * max(1.0, math.log(count))
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    cut = np.zeros(count + 1, int)
    for end in range(1, count + 1):
        costs = best[:end] + penalty + _errors_to(blocks[:end])
        cut[end] = int(np.argmin(costs))
        best[end] = costs[cut[end]]
    starts = []
    end = count
    while end:
        end = int(cut[end])
        starts.append(end)
    return starts[::-1]


def _errors_to(values: Floats) -> Floats:
    """Returns [n] the absolute error of `values[i:]` to its median, for every i.

    Two heaps would do it in n log n; with at most 400 blocks insertion into a sorted array is
    fast enough and plain.
    """
    count = len(values)
    held = np.empty(count)
    errors = np.empty(count)
    for size, index in enumerate(range(count - 1, -1, -1), 1):
        place = int(np.searchsorted(held[: size - 1], values[index]))
        held[place + 1 : size] = held[place : size - 1].copy()
        held[place] = values[index]
        half = size // 2
        errors[index] = held[size - half : size].sum() - held[:half].sum()
    return errors


def _noise(blocks: Floats) -> float:
    """The standard deviation of a block around its level, from second differences.

    They leave out a drift; the mean of the smaller three quarters leaves out a few steps. The
    factor makes it right for normal noise, whose second differences are sqrt(6) as wide.
    """
    steps = np.sort(np.abs(np.diff(blocks, 2)))
    floor = 1e-4 * float(np.median(blocks))
    return max(floor, _TRIMMED_TO_SIGMA * float(steps[: math.ceil(0.75 * len(steps))].mean()))


def _noise_within(frames: Nanoseconds) -> float:
    """The standard deviation of a block's median by the frames of the blocks themselves.

    Where frames take one of two times by chance, the middle frame is seldom of the rarer kind, and
    then far off: neighbours alike say too little. The ranks one binomial standard deviation below
    and above the middle enclose the median; a step lies within one block only.

    Args:
        frames: [blocks, frames of a block] service times.
    """
    size = frames.shape[1]
    half = math.sqrt(size) / 2
    low, high = round((size - 1) / 2 - half), round((size - 1) / 2 + half)
    ordered = np.sort(frames, axis=1).astype(np.float64)
    return float(np.sqrt((((ordered[:, high] - ordered[:, low]) / 2) ** 2).mean()))


def _tolerance(blocks: Floats, noise: float) -> float:
    """A step below this is none: 1 %, or three times the noise's median absolute deviation."""
    return max(STEP_SHARE * float(np.median(blocks)), STEP_MADS * noise / _MAD_TO_SIGMA)


def _wander(blocks: Floats, noise: float) -> float | None:
    """The blocks' standard deviation, None unless it is material and no noise of single blocks.

    Teeth and slow waves have no level that cutting them into pieces would pay for, and no slope;
    but blocks lie farther apart than neighbours do (von Neumann, "Distribution of the ratio of the
    mean square successive difference to the variance", 1941).
    """
    spread = float(blocks.std())
    share = spread / float(np.median(blocks))
    return share if share > WANDER_SHARE and spread > WANDER_SIGMAS * noise else None


def _drift_per_minute(blocks: Floats, block_s: float, tolerance: float) -> float | None:
    """The slope by least squares, None unless it is sure, and more than the tolerance in all."""
    count = len(blocks)
    minutes = np.arange(count) * block_s / 60
    centred = minutes - minutes.mean()
    slope = float((centred * (blocks - blocks.mean())).sum() / (centred**2).sum())
    residual = blocks - blocks.mean() - slope * centred
    error = math.sqrt(float((residual**2).sum()) / max(1, count - 2) / float((centred**2).sum()))
    share = slope / float(np.median(blocks))
    total = abs(slope) * float(minutes[-1] - minutes[0])
    is_sure = abs(slope) > _SURE_SIGMAS * error and total > tolerance
    return share if is_sure and abs(share) > SLOPE_SHARE_PER_MIN else None
