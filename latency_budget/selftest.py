"""Does the gate catch what it must? Injects faults whose right verdict is known.

`budget-check selftest` shows a user that this gate, on this machine, says FAIL to a stall, INVALID
to a disturbed measurement and PASS to a healthy one: a gate that never passes catches everything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from latency_budget.gpu import judge_gpu
from latency_budget.live_faults import judge_live
from latency_budget.simulated_faults import (
    FRAMES,
    bursts,
    changed_after,
    judge_machine,
    judge_samples,
    judge_simulated,
    lost_sample,
    quiet_ms,
    stall_each_minute,
    with_throttled_gpu,
)
from latency_budget.verdict import Judgement, Verdict

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A known truth.

    Attributes:
        name: what is wrong.
        expected: the only right verdict.
        judge: injects it and judges.
        gate: the gate that must find it; empty where any may.
        evidence: words that the gate's detail must hold, so that no other fault passes for it.
    """

    name: str
    expected: Verdict
    judge: Callable[[], Judgement]
    gate: str = ""
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the gate said to a fault.

    Attributes:
        name: of the fault.
        expected: the right verdict.
        found: the verdict.
        is_right: they are the same, and the right gate found it.
        detail: the evidence of the gate that decided.
    """

    name: str
    expected: str
    found: str
    is_right: bool
    detail: str

    def to_dict(self) -> dict[str, object]:
        """Returns the outcome for `--json`."""
        return dict(vars(self))


def _ids_with(*numbers: int) -> tuple[str, ...]:
    return (f"frame numbers are missing, repeated or out of order: {numbers}",)


_INDEX = np.arange(FRAMES)


def _wave(shape: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> Callable[[int], float]:
    values = quiet_ms() * shape
    return lambda index: float(values[index])


def _with_value(value: float) -> Judgement:
    latency = quiet_ms()
    latency[17] = value
    return judge_samples(latency)


SIMULATED: tuple[Fault, ...] = (
    Fault(
        name="no fault",
        expected=Verdict.PASS,
        judge=lambda: judge_simulated(_wave(np.ones(FRAMES))),
    ),
    Fault(
        name="a stall of 1 s each minute",
        expected=Verdict.FAIL,
        judge=stall_each_minute,
        gate="frame P99",
    ),
    Fault(
        name="2 % of frames take 40 ms",
        expected=Verdict.FAIL,
        judge=lambda: judge_simulated(_wave(np.where(_INDEX % 50 == 0, 2.0, 1.0))),
        gate="frame P99",
    ),
    Fault(
        name="misses in bursts of 12",
        expected=Verdict.INCONCLUSIVE,
        judge=bursts,
        gate="P99 in bursts",
    ),
    Fault(
        name="100 frames only",
        expected=Verdict.INCONCLUSIVE,
        judge=lambda: judge_simulated(_wave(np.ones(FRAMES)), frames=100),
        gate="frame P99",
    ),
    Fault(
        name="a step at half-time",
        expected=Verdict.INVALID,
        judge=lambda: judge_simulated(_wave(np.where(_INDEX < FRAMES // 2, 1.0, 1.1))),
        gate="steady state",
    ),
    Fault(
        name="a slow drift",
        expected=Verdict.INVALID,
        judge=lambda: judge_simulated(_wave(1 + 0.15 * _INDEX / FRAMES)),
        gate="steady state",
    ),
    Fault(
        name="a sawtooth that never settles",
        expected=Verdict.INVALID,
        judge=lambda: judge_simulated(_wave(1 + 0.15 * (_INDEX % 450) / 450)),
        gate="steady state",
    ),
    Fault(
        name="slow frames dropped, survivors fast",
        expected=Verdict.FAIL,
        judge=lambda: judge_simulated(_wave(np.where(_INDEX % 40 == 0, 3.4, 1.0)), policy="latest"),
        gate="frame P99",
    ),
    Fault(
        name="the clock runs backwards",
        expected=Verdict.INVALID,
        judge=lambda: judge_simulated(_wave(np.where(_INDEX == 700, -0.2, 1.0))),
        gate="samples",
    ),
    Fault(name="a lost sample", expected=Verdict.INVALID, judge=lost_sample, gate="samples"),
    *(
        Fault(
            name=f"a latency of {value:g} ms",
            expected=Verdict.INVALID,
            judge=partial(_with_value, value),
            gate="samples",
        )
        for value in (float("nan"), 0.0, -3.0)
    ),
    Fault(
        name="a frame number twice",
        expected=Verdict.INVALID,
        judge=lambda: judge_samples(quiet_ms(), defects=_ids_with(7, 7)),
        gate="samples",
    ),
    *(
        Fault(
            name=name,
            expected=Verdict.INVALID,
            judge=partial(judge_machine, **change),
            gate="environment",
            evidence=evidence,
        )
        for name, evidence, change in (
            ("5 % of the time stolen", "steal:", {"after": changed_after(steal_ticks=600)}),
            (
                "a thermal throttle event",
                "thermal throttling:",
                {"after": changed_after(throttle_count=1)},
            ),
            ("a major page fault", "major page faults:", {"after": changed_after(major_faults=1)}),
            (
                "a busy neighbour",
                "other processes:",
                {"after": changed_after(busy_ticks=12_000, wait_ns=10**9)},
            ),
            (
                "a runtime whose threads wait",
                "runtime threads waiting:",
                {"after": changed_after(helpers_wait_ns=40 * 10**9)},
            ),
            (
                "a wait for the processor",
                "waiting for a processor:",
                {"after": changed_after(wait_ns=3 * 10**9)},
            ),
            ("a stopped process", "stopped by a signal:", {"stops": 1}),
            ("late wake-ups", "no-op control", {"late_ns": 2_000_000}),
            (
                "a foreign process on the GPU",
                "other GPU processes:",
                {"extra": judge_gpu(["0, GPU, P0, 1980, 1980, 60, 200.0, 0x0"], "77, other", ())},
            ),
        )
    ),
    Fault(
        name="a throttled GPU",
        expected=Verdict.INVALID,
        judge=partial(with_throttled_gpu, 0x40),
        gate="environment",
        evidence="GPU throttling:",
    ),
    Fault(
        name="a GPU at its power cap",
        expected=Verdict.PASS,
        judge=partial(with_throttled_gpu, 0x4),
    ),
)
LIVE: tuple[Fault, ...] = (
    Fault(
        name="live: a stall of 60 ms each half second",
        expected=Verdict.FAIL,
        judge=partial(judge_live, "stall", "report"),
        gate="frame P99",
    ),
    Fault(
        name="live: the process stopped for 500 ms",
        expected=Verdict.INVALID,
        judge=partial(judge_live, "stop", "enforce"),
        gate="environment",
        evidence="stopped by a signal:",
    ),
    Fault(
        name="live: busy processes on every processor",
        expected=Verdict.INVALID,
        judge=partial(judge_live, "hog", "enforce"),
        gate="environment",
        evidence="waiting for a processor:",
    ),
)


def run_selftest(*, quick: bool = False, progress: Progress | None = None) -> list[Outcome]:
    """Injects every fault and compares the verdicts.

    Args:
        quick: leave out those on the real clock.
        progress: called with (what, done, total).
    """
    faults = SIMULATED if quick else SIMULATED + LIVE
    outcomes = []
    for number, fault in enumerate(faults):
        if progress is not None:
            progress(fault.name, number, len(faults))
        outcomes.append(inject(fault))
    return outcomes


def inject(fault: Fault) -> Outcome:
    """Injects one fault and says whether the right gate gave the right verdict."""
    judgement = fault.judge()
    found = judgement.verdict
    decisive = [gate for gate in judgement.gates if gate.verdict is found]
    named = [gate for gate in decisive if gate.name == fault.gate]
    shown = (named or decisive)[0]
    return Outcome(
        name=fault.name,
        expected=fault.expected.value,
        found=found.value,
        is_right=found is fault.expected
        and bool(named or not fault.gate)
        and fault.evidence in shown.detail,
        detail=f"{shown.name}: {shown.detail}",
    )
