"""Faults on this machine's real clock, each in a measuring process that injects it into itself."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from latency_budget.budget import Budget, FrameBudget
from latency_budget.clock import MonotonicClock
from latency_budget.experiment import Parts
from latency_budget.measure import MeasureSettings
from latency_budget.restarts import ProcessSettings, measure_in_processes
from latency_budget.stage import Stage
from latency_budget.verdict import Judgement, judge
from latency_budget.workload import Recipe, Workload

RATE_HZ = 200.0
FRAMES = 500
WORK_NS, STALL_NS = 500_000, 60_000_000
STALL_EVERY = 100
_HOG = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
_STOP = "sleep 0.3; kill -STOP {pid}; sleep 0.5; kill -CONT {pid}"


def judge_live(fault: str, environment: str) -> Judgement:
    """Measures a frame of 0.5 ms at 200 Hz with a fault in it, and judges it.

    Args:
        fault: a name of `FAULTS`.
        environment: "enforce", or "report" where the frames alone are to be judged.
    """
    recipe = Recipe(
        function="latency_budget.live_faults:open_faulty_workload", arguments={"fault": fault}
    )
    process = ProcessSettings(
        measure=MeasureSettings(frames=FRAMES, rate_hz=RATE_HZ, warmup_frames=50),
        parts=Parts(control=100, closed=50, other=0),
    )
    experiment = measure_in_processes(recipe, process)
    budget = Budget(
        frame=FrameBudget(rate_hz=RATE_HZ, deadline_ms=4.5, jitter_floor_ms=4.0),
        environment=environment,
    )
    return judge(experiment.paced, budget, environment=experiment.environment)


def open_faulty_workload(fault: str) -> Workload:
    """Makes a frame that spins for 0.5 ms and carries a fault; the function of a `Recipe`."""
    helpers: list[subprocess.Popen[bytes]] = []
    inject = FAULTS[fault](helpers)
    clock = MonotonicClock()
    seen = [0]

    def work(payload: Any) -> Any:
        seen[0] += 1
        clock.wait_until_ns(clock.now_ns() + WORK_NS)
        inject(seen[0])
        return payload

    def close() -> None:
        for helper in helpers:
            helper.kill()
            helper.wait()

    return Workload(stages=[Stage("work", work)], frames=[None], close=close)


def _stall(helpers: list[subprocess.Popen[bytes]]) -> Callable[[int], None]:
    clock = MonotonicClock()

    def inject(count: int) -> None:
        if count % STALL_EVERY == 0:
            clock.wait_until_ns(clock.now_ns() + STALL_NS)

    return inject


def _stop(helpers: list[subprocess.Popen[bytes]]) -> Callable[[int], None]:
    """Cold frames, closed loop and warm-up are 10 + 100 + 50, so the stop meets a timed frame."""

    def inject(count: int) -> None:
        if count == 250:
            command = _STOP.format(pid=os.getpid())
            helpers.append(subprocess.Popen(["/bin/sh", "-c", command]))

    return inject


def _hog(helpers: list[subprocess.Popen[bytes]]) -> Callable[[int], None]:
    """Three busy processes for each processor, so that one of them meets the timed thread."""
    for _ in range(3 * (os.cpu_count() or 1)):
        helpers.append(subprocess.Popen([sys.executable, "-S", "-c", _HOG]))
    return lambda count: None


FAULTS: dict[str, Callable[[list[subprocess.Popen[bytes]]], Callable[[int], None]]] = {
    "stall": _stall,
    "stop": _stop,
    "hog": _hog,
}
