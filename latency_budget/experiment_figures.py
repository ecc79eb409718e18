"""The figures of a measurement beside the judged frames, as report.json holds them."""

from typing import Any

import numpy as np

from latency_budget.experiment import ColdStart, Experiment, Harness
from latency_budget.run import Run
from latency_budget.statistics import percentile_ns


def describe_experiment(experiment: Experiment) -> dict[str, Any]:
    """Returns cold starts, processes, the other policy, the harness's own cost and scheduling.

    Times are in ms; None where there are too few frames for a percentile.
    """
    figures: dict[str, Any] = {
        "cold_start": [_describe_cold(cold) for cold in experiment.cold],
        "processes": [_describe_process(part) for part in experiment.paced.split()],
        "process_spread": experiment.process_spread,
        "harness": _describe_harness(experiment.harness),
        "scheduling": experiment.scheduling,
    }
    if experiment.other is not None:
        other = experiment.other
        figures["other_policy"] = {
            "mode": other.mode,
            "n": other.count,
            "dropped": int(other.dropped.sum()),
            "p50_ms": _percentile_ms(np.sort(other.latency_ns), 0.5),
            "max_ms": _ms(int(other.service_ns.max())) if len(other.service_ns) else None,
        }
    if experiment.cold:
        figures["first_frame_ms"] = _describe_cold(experiment.cold[0])["first_frame_ms"]
        figures["first_ten_ms"] = _describe_cold(experiment.cold[0])["first_ten_ms"]
    return figures


def _describe_cold(cold: ColdStart) -> dict[str, Any]:
    return {
        "start_ms": _ms(cold.start_ns),
        "load_ms": _ms(cold.load_ns),
        "first_frame_ms": _ms(cold.first_ns[0]) if cold.first_ns else None,
        "first_ten_ms": [_ms(value) for value in cold.first_ns],
    }


def _describe_process(run: Run) -> dict[str, Any]:
    ordered = np.sort(run.latency_ns)
    return {
        "n": run.count,
        "p50_ms": _percentile_ms(ordered, 0.5),
        "p99_ms": _percentile_ms(ordered, 0.99),
        "service_p50_ms": _percentile_ms(np.sort(run.service_ns), 0.5),
    }


def _describe_harness(harness: Harness) -> dict[str, Any]:
    errors = np.sort(harness.wakeup_errors_ns)
    return {
        "frame_cost_us": None if harness.frame_cost_ns is None else harness.frame_cost_ns / 1e3,
        "control_frames": len(errors),
        "wakeup_p50_us": _us(percentile_ns(errors, 0.5)),
        "wakeup_p99_us": _us(percentile_ns(errors, 0.99)),
        "wakeup_p999_us": _us(percentile_ns(errors, 0.999)),
        "wakeup_max_us": _us(int(errors[-1])) if len(errors) else None,
    }


def _percentile_ms(ordered: Any, quantile: float) -> float | None:
    return _ms(percentile_ns(ordered, quantile))


def _ms(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else round(nanoseconds / 1e6, 6)


def _us(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e3
