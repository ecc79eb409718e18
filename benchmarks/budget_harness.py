"""Measures the harness itself: what a frame costs it, how late it wakes, and whether it agrees.

`python -m benchmarks.budget_harness [MODEL.onnx ...]` writes its table into docs/latency.md. It
runs our closed loop, OpenVINO's `benchmark_app` and onnxruntime's own loop on the same files in one
run, in turns, and compares medians; figures of a busy machine are marked as such.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.atomic import write_text
from benchmarks.budget_statistics import PAGE
from benchmarks.marked import replace_section
from engines.random_feeds import random_feeds
from engines.runtimes import open_session
from latency_budget.experiment import Parts
from latency_budget.measure import MeasureSettings, measure_closed
from latency_budget.network import network_stage
from latency_budget.restarts import ProcessSettings, measure_in_processes
from latency_budget.workload import Recipe

DEMO = (Path("out/demo/road.int8.onnx"), Path("out/demo/road.onnx"))
ROUNDS, RUNS_PER_ROUND = 16, 100
RESAMPLES = 2000
SAMPLE = Path("out/bench/one_sample.npz")
WARM_UP = 15
THEIR_LOOPS = {"openvino": "`benchmark_app`", "onnxruntime": "a bare loop over `run`"}


def main() -> None:
    """Measures and writes the table."""
    models = [Path(name) for name in sys.argv[1:]] or list(DEMO)
    figures = {
        "harness": measure_harness(models[0]),
        "models": {
            model.name: {
                "openvino": compare_openvino(model),
                "onnxruntime": compare_onnxruntime(model),
            }
            for model in models
        },
    }
    write_table(figures)
    print(json.dumps(figures, indent=1))


def measure_harness(model: Path) -> dict[str, Any]:
    """Returns the no-op control and the cost of a frame, of 1000 control frames in all."""
    recipe = Recipe(
        function="latency_budget.network:open_network_workload", arguments={"model": str(model)}
    )
    settings = ProcessSettings(
        measure=MeasureSettings(frames=60), parts=Parts(control=600, closed=30, other=0)
    )
    experiment = measure_in_processes(recipe, settings)
    errors = np.sort(experiment.harness.wakeup_errors_ns) / 1e3
    waits = {check.name: check.detail for check in experiment.environment.checks}
    return {
        "frame_cost_us": (experiment.harness.frame_cost_ns or 0) / 1e3,
        "control_frames": len(errors),
        "wakeup_us": {
            name: float(errors[min(len(errors) - 1, int(share * len(errors)))])
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
        },
        "other_processes": waits.get("other processes", "unknown"),
        "steal": waits.get("steal", "unknown"),
    }


def compare_openvino(model: Path) -> dict[str, float]:
    """Returns the medians in ms of our loop and of `benchmark_app`, in turns.

    Both use one synchronous request, the latency hint, float inference and one input again and
    again (a frame's own input, as budget-check gives it, has to be fetched from memory first);
    `benchmark_app` reports a median of its own. Without `-ip f32` it would make a picture's input
    uint8 without a word, and read a quarter of the bytes.
    """
    tool = Path(sys.executable).with_name("benchmark_app")
    command = [
        str(tool), "-m", str(model), "-d", "CPU", "-api", "sync", "-hint", "latency",
        "-infer_precision", "f32", "-ip", "f32", "-niter", str(RUNS_PER_ROUND),
    ]  # fmt: skip

    def measure_theirs() -> float:
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = re.search(r"Median:\s+([\d.]+) ms", text)
        if found is None:
            raise SystemExit(f"benchmark_app gave no median: {text[-500:]}")
        return float(found[1])

    with open_session(model, "openvino") as session:
        SAMPLE.parent.mkdir(parents=True, exist_ok=True)
        np.savez(SAMPLE, **random_feeds(session)[0])  # type: ignore[arg-type]
    ours, theirs = [], []
    for turn in range(ROUNDS):
        if turn % 2:
            theirs.append(measure_theirs())
        ours.append(_our_openvino_ms(model))
        if not turn % 2:
            theirs.append(measure_theirs())
    return _compare(ours, theirs)


def compare_onnxruntime(model: Path) -> dict[str, float]:
    """Returns the medians in ms of our loop and of a bare loop over `InferenceSession.run`.

    It is what onnxruntime's `onnxruntime_perf_test` does; the Python wheel does not hold that
    program. Both use the same session, a round of one after a round of the other.
    """
    ours, theirs = [], []
    with open_session(model, "onnxruntime") as session:
        inner = session._session  # type: ignore[attr-defined]
        feeds = random_feeds(session)[0]
        settings = MeasureSettings(frames=RUNS_PER_ROUND, warmup_frames=WARM_UP)
        for _ in range(ROUNDS):
            run = measure_closed([network_stage(session)], [feeds], settings)
            ours.append(float(np.median(run.latency_ns)) / 1e6)
            spans = []
            for turn in range(WARM_UP + RUNS_PER_ROUND):
                begin = time.perf_counter_ns()
                inner.run(None, dict(feeds))
                if turn >= WARM_UP:
                    spans.append(time.perf_counter_ns() - begin)
            theirs.append(float(np.median(spans)) / 1e6)
    return _compare(ours, theirs)


def _our_openvino_ms(model: Path) -> float:
    recipe = Recipe(
        function="latency_budget.network:open_network_workload",
        arguments={"model": str(model), "runtime": "openvino", "data": str(SAMPLE)},
    )
    measure = MeasureSettings(frames=RUNS_PER_ROUND, warmup_frames=WARM_UP, rate_hz=1000)
    parts = Parts(control=0, closed=RUNS_PER_ROUND, other=0)
    experiment = measure_in_processes(recipe, ProcessSettings(measure=measure, parts=parts))
    return float(np.median(experiment.closed.latency_ns)) / 1e6


def _compare(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Compares medians of rounds that took turns, and their best rounds.

    The interval of the ratio is a bootstrap over pairs of neighbouring rounds: 95 % of the
    resampled runs lie in it.
    """
    pairs = np.array([ours, theirs])
    places = np.random.default_rng(0).integers(0, len(ours), (RESAMPLES, len(ours)))
    medians = np.median(pairs[:, places], axis=2)
    low, high = np.quantile(medians[0] / medians[1], (0.025, 0.975))
    middle = np.median(pairs, axis=1)
    return {
        "ours_ms": float(middle[0]),
        "theirs_ms": float(middle[1]),
        "ratio": float(middle[0] / middle[1]),
        "ratio_low": float(low),
        "ratio_high": float(high),
        "best_ratio": min(ours) / min(theirs),
    }


def write_table(figures: dict[str, Any], page: Path = PAGE) -> None:
    """Puts the figures between the markers of the page."""
    harness = figures["harness"]
    cost, late = harness["frame_cost_us"], harness["wakeup_us"]
    rows = [
        ("the harness's own cost of a frame, median", f"{cost:.1f} µs", "<= 20 µs", cost <= 20),
        (
            f"no-op control at 30 Hz, wake-up error, P50 / P99 / P99.9 of "
            f"{harness['control_frames']} frames",
            " / ".join(f"{late[name]:.1f}" for name in ("p50", "p99", "p999")) + " µs",
            "P99.9 reported",
            True,
        ),
    ]
    for model, by_runtime in figures["models"].items():
        for runtime, row in by_runtime.items():
            rows.append(
                (
                    f"P50 of {model} on {runtime}: ours against {THEIR_LOOPS[runtime]}, median of "
                    f"{ROUNDS} rounds in turns",
                    f"{row['ours_ms']:.2f} against {row['theirs_ms']:.2f} ms "
                    f"({row['ratio'] - 1:+.1%}, 95 % of resampled runs {row['ratio_low'] - 1:+.1%} "
                    f"to {row['ratio_high'] - 1:+.1%}; best rounds {row['best_ratio'] - 1:+.1%})",
                    "within 2 %",
                    abs(row["ratio"] - 1) <= 0.02,
                )
            )
    table = [
        f"Measured with `python -m benchmarks.budget_harness` on {', '.join(figures['models'])}. "
        f"The machine then: other processes {harness['other_processes']}; "
        f"steal {harness['steal']}.",
        "",
        "| measured | found | must be | holds |",
        "|---|---|---|---|",
        *(f"| {a} | {b} | {c} | {'yes' if d else '**no**'} |" for a, b, c, d in rows),
    ]
    write_text(page, replace_section(page.read_text(encoding="utf-8"), "budget_harness", table))


if __name__ == "__main__":
    main()
