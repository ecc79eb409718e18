"""Does it matter when in the period a frame arrives? Finds beats with timers and displays.

A camera's clock and the machine's own timers drift past each other, so sooner or later every phase
happens; a benchmark sees one of them. The sweep moves the first arrival through the period, and the
rate by one per cent either way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latency_budget.experiment import Parts, Progress
from latency_budget.regression import compare_tails
from latency_budget.restarts import ProcessSettings, measure_in_processes
from latency_budget.run import Run
from latency_budget.statistics import frames_needed, percentile_ns
from latency_budget.workload import Recipe

PHASES = (0.0, 0.25, 0.5, 0.75)
RATE_FACTORS = (0.99, 1.01)
BEAT_ALLOWED = 0.03


@dataclass(frozen=True, kw_only=True)
class PhaseRow:
    """One setting of the sweep.

    Attributes:
        phase: of the first arrival, as a share of the period.
        rate_hz: of the arrivals.
        run: the frames.
    """

    phase: float
    rate_hz: float
    run: Run


def sweep_phases(
    recipe: Recipe, settings: ProcessSettings, frames: int, progress: Progress | None = None
) -> list[PhaseRow]:
    """Measures the same frame at four phases and at two rates, a process each.

    Args:
        recipe: how each process makes the workload.
        settings: how to measure; frames, phase, restarts and parts are the sweep's own.
        frames: of each setting.
        progress: called with (what, done, total).
    """
    rate_hz = settings.measure.rate_hz
    plan = [(phase, rate_hz) for phase in PHASES]
    plan += [(0.0, round(rate_hz * factor, 6)) for factor in RATE_FACTORS]
    rows = []
    for number, (phase, rate) in enumerate(plan):
        if progress is not None:
            progress(f"phase {phase:g} at {rate:g} Hz", number, len(plan))
        measure = replace(
            settings.measure,
            frames=frames,
            rate_hz=rate,
            phase_ns=settings.measure.phase_ns + round(phase * 1e9 / rate),
            stop=None,
        )
        process = replace(
            settings, measure=measure, restarts=1, parts=Parts(control=0, closed=0, other=0)
        )
        rows.append(
            PhaseRow(phase=phase, rate_hz=rate, run=measure_in_processes(recipe, process).paced)
        )
    return rows


def describe_sweep(rows: list[PhaseRow]) -> dict[str, Any]:
    """Returns the sweep's figures, and the settings whose P99 is surely above the first one's.

    With fewer than 368 frames a setting can be shown but not compared: `slower` is None then.
    """
    first = rows[0].run.latency_ns
    table, outcomes = [], {}
    for row in rows:
        ordered = np.sort(row.run.latency_ns)
        p50, p99 = percentile_ns(ordered, 0.5), percentile_ns(ordered, 0.99)
        table.append(
            {
                "phase": row.phase,
                "rate_hz": row.rate_hz,
                "p50_ms": None if p50 is None else p50 / 1e6,
                "p99_ms": None if p99 is None else p99 / 1e6,
            }
        )
        found = compare_tails(first, row.run.latency_ns, allowed=BEAT_ALLOWED)
        outcomes[f"phase {row.phase:g} at {row.rate_hz:g} Hz"] = found.outcome
    is_compared = "inconclusive" not in outcomes.values()
    slower = [name for name, outcome in outcomes.items() if outcome == "fail"]
    return {
        "frames": rows[0].run.count,
        "settings": table,
        "slower": slower if slower or is_compared else None,
    }


def summarise_sweep(described: Mapping[str, Any]) -> str:
    """Returns what `describe_sweep` found in one sentence, for the reports."""
    start = f"Phase sweep, {len(described['settings'])} settings of {described['frames']} frames: "
    p99s = [row["p99_ms"] for row in described["settings"] if row["p99_ms"] is not None]
    if p99s:
        start += f"P99 {min(p99s):.2f} to {max(p99s):.2f} ms, "
    if described["slower"] is None:
        needed = frames_needed(0, 0.99, 0.975)
        return f"{start}not compared ({needed} frames each, and few dropped, are needed)."
    return f"{start}surely slower than the first one: {', '.join(described['slower']) or 'none'}."
