"""Simulates the frame gate: how often it passes what it must not, and fails what it should pass.

`python -m benchmarks.budget_statistics` writes its table into docs/latency.md. Every seed is fixed;
the frames are made up, so the figures hold on any machine. What needs a machine (the harness's own
cost, P50 beside other tools) is measured by `benchmarks/budget_harness.py`.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts.atomic import write_text
from benchmarks.marked import replace_section
from latency_budget.budget import Budget, FrameBudget
from latency_budget.bursts import bound_miss_rate
from latency_budget.jitter_gate import judge_jitter
from latency_budget.regression import compare_runs, compare_tails
from latency_budget.run import Run
from latency_budget.sequential import judge_sequence
from latency_budget.statistics import claim_percentile, claim_ratio, misses_allowed
from latency_budget.steady import find_steady
from latency_budget.stop_rule import SequentialStop
from latency_budget.tiers import TIERS
from latency_budget.verdict import judge

PAGE = Path(__file__).parents[1] / "docs" / "latency.md"
SEED = 20261121
RUNS = 2000
MS = 1_000_000
LOOK_FRAMES = 30

Misses = NDArray[np.bool_]


@dataclass(frozen=True)
class Row:
    """One figure: what was simulated, what came out, and what must hold."""

    what: str
    found: float
    goal: str
    holds: bool
    unit: str = "%"

    def render(self) -> str:
        """Returns the table's line."""
        shown = f"{100 * self.found:.2f} %" if self.unit == "%" else f"{self.found:g}"
        return f"| {self.what} | {shown} | {self.goal} | {'yes' if self.holds else '**no**'} |"


def main() -> None:
    """Runs every simulation and writes the table."""
    rows: list[Row] = []
    for make in (
        false_passes,
        false_fails,
        ratios,
        ratios_in_bursts,
        sequential,
        regressions,
        steadiness,
        traces,
    ):
        rows += make()
        print(f"{make.__name__}: {len(rows)} rows", file=sys.stderr)
    write_table(rows)
    print("\n".join(row.render() for row in rows))


def write_table(rows: list[Row], page: Path = PAGE) -> None:
    """Puts the rows between the markers of the page, leaving the rest alone."""
    table = [
        f"Simulated with `python -m benchmarks.budget_statistics` (seed {SEED}, {RUNS} runs each "
        "where nothing else is said).",
        "",
        "| simulated | found | must be | holds |",
        "|---|---|---|---|",
        *(row.render() for row in rows),
    ]
    write_text(page, replace_section(page.read_text(encoding="utf-8"), "budget_statistics", table))


def independent_misses(rng: np.random.Generator, frames: int, rate: float) -> Misses:
    """Returns [frames] misses, each with the chance `rate`."""
    return rng.random(frames) < rate


def burst_misses(rng: np.random.Generator, frames: int, rate: float, mean: float) -> Misses:
    """Returns [frames] misses in bursts of geometric length with that mean, `rate` in all.

    Gaps are geometric too, so that the long-run share of missed frames is `rate`.
    """
    gap = mean * (1 - rate) / rate
    count = int(1.5 * frames / (mean + gap)) + 50
    lengths = rng.geometric(1 / mean, count)
    gaps = rng.geometric(1 / gap, count)
    edges = np.cumsum(np.stack([gaps, lengths], axis=1).ravel())
    starts, ends = edges[0::2], edges[1::2]
    steps = np.zeros(frames + 1, np.int64)
    np.add.at(steps, np.minimum(starts, frames), 1)
    np.add.at(steps, np.minimum(ends, frames), -1)
    misses: Misses = np.cumsum(steps)[:frames] > 0
    # A run that begins in the middle of the process, not at the end of a burst.
    return np.roll(misses, int(rng.integers(frames)))


def false_passes() -> list[Row]:
    """How often a true miss rate of 1 % passes; it must not."""
    rng = np.random.default_rng(SEED)
    rows = []
    for frames in (1800, 18_000):
        allowed = misses_allowed(frames, 0.99, 0.95)
        found = float((rng.binomial(frames, 0.01, 20_000) <= (allowed or 0)).mean())
        what = f"order statistics, independent misses of a true 1 %, {frames} frames: passes"
        rows.append(Row(f"{what} (20 000 runs)", found, "<= 5 %", found <= 0.05))
    for frames in (18_000, 54_000):
        for mean in (1, 3, 10, 30):
            cluster, naive = _burst_passes(rng, frames, mean)
            goal = 0.07 if (frames, mean) == (54_000, 10) else None
            what = f"cluster bound, a true 1 % in bursts of {mean}, {frames} frames: passes"
            rows.append(
                Row(
                    f"{what} (order statistics alone: {naive:.1%})",
                    cluster,
                    "<= 7 %" if goal else "-",
                    cluster <= (goal or 1),
                )
            )
    return rows


def _burst_passes(rng: np.random.Generator, frames: int, mean: int) -> tuple[float, float]:
    allowed = misses_allowed(frames, 0.99, 0.95) or 0
    cluster = naive = 0
    for _ in range(RUNS):
        misses = (
            independent_misses(rng, frames, 0.01)
            if mean == 1
            else burst_misses(rng, frames, 0.01, mean)
        )
        independent = int(misses.sum()) <= allowed
        naive += independent
        cluster += independent and bound_miss_rate(misses).rate < 0.01
    return cluster / RUNS, naive / RUNS


def false_fails() -> list[Row]:
    """How often a miss rate that the claim allows fails; it should not."""
    rng = np.random.default_rng(SEED + 5)
    rows = []
    for rate, goal in ((0.002, 0.01), (0.005, 0.05), (0.007, 0.05), (0.01, 0.15)):
        outcomes = [_judge_pr(independent_misses(rng, 1980, rate)) for _ in range(RUNS)]
        found, passed = (outcomes.count(outcome) / RUNS for outcome in ("fail", "pass"))
        what = f"tier pr, a true {100 * rate:g} %: fails (passes: {passed:.0%})"
        rows.append(Row(what, found, f"<= {100 * goal:g} %", found <= goal))
    for mean in (3, 10, 30):
        cluster, naive = _burst_fails(rng, 18_000, mean)
        what = (
            f"cluster rule, a true 1 % in bursts of {mean}, 18000 frames: fails "
            f"(order statistics alone: {naive:.1%})"
        )
        rows.append(Row(what, cluster, "<= 7 %", cluster <= 0.07))
    return rows


def _judge_pr(misses: Misses) -> str:
    """The frame's gate of the tier `pr`, which ends early where the sequential test proves it."""
    stop = SequentialStop(deadline_ns=0, min_frames=TIERS["pr"].min_frames)
    looks = range(LOOK_FRAMES, len(misses), LOOK_FRAMES)
    end = next((end for end in looks if stop(misses[:end].astype(np.int64))), len(misses))
    whole = claim_percentile(int(misses[:end].sum()), end, 0.99, 0.95)
    return "fail" if whole.outcome == "fail" else judge_sequence(misses[:end]).outcome


def _burst_fails(rng: np.random.Generator, frames: int, mean: int) -> tuple[float, float]:
    cluster = naive = 0
    for _ in range(RUNS):
        misses = burst_misses(rng, frames, 0.01, mean)
        independent = claim_percentile(int(misses.sum()), frames, 0.99, 0.95).outcome == "fail"
        naive += independent
        cluster += independent and bound_miss_rate(misses).lower_rate > 0.01
    return cluster / RUNS, naive / RUNS


def ratios() -> list[Row]:
    """Passes of the jitter gate, limit 1.2, on lognormal latencies of a known P99/P50."""
    rng = np.random.default_rng(SEED + 1)
    rows = []
    for ratio, frames, goal, holds in (
        (1.20, 3000, "<= 2.5 %", lambda found: found <= 0.025),
        (1.15, 3000, ">= 95 %", lambda found: found >= 0.95),
        (1.14, 1000, "-", lambda found: True),
        (1.18, 9000, "-", lambda found: True),
    ):
        found = _share(lambda: _ratio_passes(rng, ratio, frames))  # noqa: B023
        rows.append(
            Row(
                f"jitter gate at a true {ratio:.2f}, {frames} frames: passes",
                found,
                goal,
                holds(found),
            )
        )
    return rows


def ratios_in_bursts() -> list[Row]:
    """Verdicts of the jitter gate on frames of which 1 % are slow in bursts: P99 is at the edge."""
    rng = np.random.default_rng(SEED + 6)
    rows = []
    for mean in (3, 10, 30):
        latencies = [_slow_bursts(rng, 18_000, mean) for _ in range(RUNS)]
        for outcome, goal in (("passes", 0.12), ("fails", 0.05)):
            verdict = "pass" if outcome == "passes" else "fail"
            alone, found = (
                sum(_judge_ratio(times, in_bursts) == verdict for times in latencies) / RUNS
                for in_bursts in (False, True)
            )
            what = (
                f"jitter gate, cluster rule, 1 % slow in bursts of {mean}, 18000 frames: {outcome} "
                f"(without the bound on bursts: {alone:.1%})"
            )
            rows.append(Row(what, found, f"<= {100 * goal:g} %", found <= goal))
    return rows


def _slow_bursts(rng: np.random.Generator, frames: int, mean: int) -> NDArray[np.int64]:
    """Returns [frames] latencies of 20 ms, or of 26 ms in bursts that are 1 % of them."""
    times = np.where(burst_misses(rng, frames, 0.01, mean), 26 * MS, 20 * MS)
    return (times * (1 + 0.005 * rng.standard_normal(frames))).astype(np.int64)


def _judge_ratio(latency_ns: NDArray[np.int64], in_bursts: bool) -> str:
    run = Run.from_latencies(latency_ns)
    return judge_jitter(run, FrameBudget(), in_bursts=in_bursts).verdict.value


def _ratio_passes(rng: np.random.Generator, ratio: float, frames: int) -> bool:
    sigma = math.log(ratio) / 2.3263478740408408
    latency = np.sort(rng.lognormal(math.log(20 * MS), sigma, frames).astype(np.int64))
    return claim_ratio(latency, 1.2).outcome == "pass"


def sequential() -> list[Row]:
    """The sequential test: how soon it decides, and how often wrongly."""
    rng = np.random.default_rng(SEED + 2)
    clean = judge_sequence(np.zeros(1000, bool)).decided_at or 0
    bad = [judge_sequence(independent_misses(rng, 2000, 0.05)) for _ in range(RUNS)]
    failed_at = [c.decided_at if c.outcome == "fail" else None for c in bad]
    median = float(np.median([at or math.inf for at in failed_at]))
    passed = float(np.mean([claim.outcome == "pass" for claim in bad]))
    edge = [judge_sequence(independent_misses(rng, 18_000, 0.01)) for _ in range(RUNS)]
    wrong = float(np.mean([claim.outcome == "pass" for claim in edge]))
    good = [judge_sequence(independent_misses(rng, 18_000, 0.002)) for _ in range(RUNS)]
    right = float(np.mean([claim.outcome == "pass" for claim in good]))
    return [
        Row(
            "sequential test, no miss: passes after so many frames", clean, "373", clean == 373, ""
        ),
        Row(
            "sequential test, 5 % missed: median frames to fail", median, "<= 40", median <= 40, ""
        ),
        Row("sequential test, 5 % missed: passes", passed, "0 %", passed == 0),
        Row(
            "sequential test, a true 1 %, 18000 frames: passes",
            wrong,
            "<= 5 %",
            wrong <= 0.05,
        ),
        Row("sequential test, a true 0.2 %: passes", right, ">= 95 %", right >= 0.95),
    ]


def regressions() -> list[Row]:
    """A tail that grows from 0.5 % to 2 % slow frames, and one that does not."""
    rng = np.random.default_rng(SEED + 3)
    frames = 9000
    caught = _share(
        lambda: compare_runs(_tail(rng, frames, 0.005), _tail(rng, frames, 0.02)).outcome == "fail"
    )
    alarms = _share(
        lambda: compare_runs(_tail(rng, frames, 0.005), _tail(rng, frames, 0.005)).outcome == "fail"
    )
    near = _share(
        lambda: compare_tails(_tail(rng, frames, 0.01), _tail(rng, frames, 0.01)).outcome == "fail"
    )
    alike = [
        Row(
            f"two runs of one build whose frames correlate by {alike}, {count} each: false alarms",
            found := _share(lambda: _differ(rng, count, alike)),  # noqa: B023
            "<= 5 %",
            found <= 0.05,
        )
        for alike in (0.9, 0.98)
        for count in (1000, 9000)
    ]
    return [
        Row(f"slow frames 0.5 % then 2 %, {frames} each: found", caught, ">= 95 %", caught >= 0.95),
        Row(
            f"slow frames 0.5 % both, {frames} each: false alarms", alarms, "<= 1 %", alarms <= 0.01
        ),
        Row(
            f"slow frames 1 % both (P99 on the edge), {frames} each: false alarms",
            near,
            "<= 1 %",
            near <= 0.01,
        ),
        *alike,
    ]


def wander(
    rng: np.random.Generator, frames: int, correlation: float, spread: float
) -> NDArray[np.int64]:
    """Returns [frames] latencies around 20 ms, each like the one before (an AR(1) process)."""
    from scipy.signal import lfilter

    steps = rng.normal(0, spread * math.sqrt(1 - correlation**2), 1000 + frames)
    around = lfilter([1.0], [1.0, -correlation], steps)[1000:]
    latency: NDArray[np.int64] = (20 * MS * (1 + around)).astype(np.int64)
    return latency


def _differ(rng: np.random.Generator, frames: int, correlation: float) -> bool:
    before, after = (wander(rng, frames, correlation, 0.02) for _ in range(2))
    return compare_runs(before, after).outcome == "fail"


def _tail(rng: np.random.Generator, frames: int, slow: float) -> NDArray[np.int64]:
    base = rng.lognormal(math.log(20 * MS), 0.02, frames)
    tail = rng.lognormal(math.log(30 * MS), 0.05, frames)
    return np.where(rng.random(frames) < slow, tail, base).astype(np.int64)


def steadiness() -> list[Row]:
    """The steady state: runs that have one, and runs that do not."""
    rng = np.random.default_rng(SEED + 4)
    shapes: tuple[tuple[str, Callable[[NDArray[np.float64]], NDArray[np.float64]], bool], ...] = (
        ("level with 3 % noise", np.ones_like, True),
        (
            "level with a tenth of the frames half as slow again",
            lambda x: 1 + 0.5 * (rng.random(len(x)) < 0.1),
            True,
        ),
        (
            "a warm-up of a tenth of the run, 30 % slower",
            lambda x: np.where(x < 0.1, 1.3, 1.0),
            True,
        ),
        ("a step of 5 % at half-time", lambda x: np.where(x < 0.5, 1.0, 1.05), False),
        ("a drift of 10 %", lambda x: 1 + 0.1 * x, False),
        (
            "a sawtooth of 20 %, three and a third teeth",
            lambda x: 1 + 0.2 * ((x * 10 / 3) % 1),
            False,
        ),
        ("a slow wave of 1 % either way", lambda x: 1 + 0.01 * np.sin(20 * x), True),
        (
            "level with 60 % of the frames, by chance, half as slow again",
            lambda x: 1 + 0.5 * (rng.random(len(x)) < 0.6),
            True,
        ),
    )
    rows = []
    share = np.arange(1000) / 1000
    for name, shape, is_steady in shapes:
        outcomes = [
            find_steady(
                (20 * MS * rng.lognormal(0, 0.03, 1000) * shape(share)).astype(np.int64), 1 / 30
            ).outcome
            for _ in range(RUNS // 10)
        ]
        found = outcomes.count("steady" if is_steady else "unsteady") / len(outcomes)
        goal = ("steady " if is_steady else "refused ") + ">= 95 %"
        rows.append(
            Row(
                f"steady state, {name}, 1000 frames ({RUNS // 10} runs)", found, goal, found >= 0.95
            )
        )
    return rows


def traces() -> list[Row]:
    """The whole gate on frames whose P99 is the deadline of 30 ms, so that a pass is wrong.

    The goals are those of the rule: 5 % where misses are independent, 7 % for the cluster rule; the
    sequential rule assumes independence, and its figures for other frames say what that is worth.
    """
    rng = np.random.default_rng(SEED + 7)
    count, rows = RUNS // 20, []
    for name, make, goals in (
        ("heavy tail (Pareto, 3)", _heavy, (0.05, 0.07)),
        ("two modes, 25 and 31 ms", _two_modes, (0.05, 0.07)),
        ("whole milliseconds", _coarse, (0.05, 0.07)),
        ("missing 0 % at first and 2 % at the end", _worsening, (None, 0.07)),
        ("correlated by 0.9 (AR(1))", lambda r, n: _correlated(r, n, 0.9), (None, 0.1)),
        ("correlated by 0.98 (AR(1))", lambda r, n: _correlated(r, n, 0.98), (None, 0.1)),
        ("10 % of it in states of 3 s that miss a tenth", _in_states, (None, 0.1)),
    ):
        for tier, goal in zip(("pr", "nightly"), goals, strict=True):
            verdicts = [_judge_whole(make(rng, TIERS[tier].frames), tier) for _ in range(count)]
            passed, failed, invalid = (
                verdicts.count(verdict) / count for verdict in ("pass", "fail", "invalid")
            )
            what = f"tier {tier}, {name}: passes (fails {failed:.0%}, invalid {invalid:.0%})"
            shown = "-" if goal is None else f"<= {100 * goal:g} %"
            holds = goal is None or passed <= goal
            rows.append(Row(f"{what} ({count} runs)", passed, shown, holds))
    return rows


def _judge_whole(latency_ns: NDArray[np.int64], tier: str) -> str:
    frame = FrameBudget(rate_hz=30, deadline_ms=30, p99_over_p50=10, max_consecutive_misses=10**6)
    run = Run.from_latencies(latency_ns, rate_hz=30)
    return judge(run, Budget(frame=frame), tier=TIERS[tier]).verdict.value


def _heavy(rng: np.random.Generator, frames: int) -> NDArray[np.int64]:
    return (30 * MS * (100 * rng.uniform(1e-9, 1, frames)) ** (-1 / 3)).astype(np.int64)


def _two_modes(rng: np.random.Generator, frames: int) -> NDArray[np.int64]:
    mode = np.where(rng.random(frames) < 0.01, 31 * MS, 25 * MS)
    return mode + rng.integers(0, 1000, frames)


def _by_share(share: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns the latencies that are exceeded with these chances: 25 ms and more, P99 30 ms."""
    return (25 * MS + 5 * MS * np.log(1 / share) / math.log(100)).astype(np.int64)


def _coarse(rng: np.random.Generator, frames: int) -> NDArray[np.int64]:
    return _by_share(rng.uniform(1e-9, 1, frames)) // MS * MS


def _worsening(rng: np.random.Generator, frames: int) -> NDArray[np.int64]:
    is_slow = rng.random(frames) < 0.02 * np.arange(frames) / frames
    return np.where(is_slow, 31 * MS, 25 * MS + rng.integers(0, MS, frames))


def _correlated(rng: np.random.Generator, frames: int, correlation: float) -> NDArray[np.int64]:
    around = (wander(rng, frames, correlation, 0.01) / (20 * MS) - 1) / 0.01
    shares = [0.5 * math.erfc(item / math.sqrt(2)) for item in around.tolist()]
    return _by_share(np.maximum(1e-9, shares))


def _in_states(rng: np.random.Generator, frames: int) -> NDArray[np.int64]:
    is_bad = burst_misses(rng, frames, 0.1, 90)
    is_slow = is_bad & (rng.random(frames) < 0.1)
    return np.where(is_slow, 31 * MS, 25 * MS + rng.integers(0, MS, frames))


def _share(happens: Callable[[], bool]) -> float:
    return sum(happens() for _ in range(RUNS)) / RUNS


if __name__ == "__main__":
    main()
