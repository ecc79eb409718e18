"""What `budget-check init` makes a first budget of: a measurement, or recorded latencies."""

import logging
from dataclasses import dataclass
from pathlib import Path

from artifacts.errors import InputError
from artifacts.ownership import read_heads
from framefit.budget_job import Engine, Progress, make_recipe
from framefit.network_check import check_network
from framefit.overflow_check import warn_of_overflow
from latency_budget.budget import FrameBudget
from latency_budget.environment import Environment
from latency_budget.measure import MeasureSettings
from latency_budget.recorded import read_recording
from latency_budget.restarts import ProcessSettings, measure_in_processes
from latency_budget.run import Run

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a budget is made of.

    Attributes:
        run: the frames.
        rate_hz: at which they came.
        heads: of the measured network, where one was named.
    """

    run: Run
    rate_hz: float
    heads: tuple[str, ...] = ()


def measure_or_read(
    model: Path | None,
    samples: Path | None,
    pipeline: str | None,
    engine: Engine,
    *,
    frames: int,
    rate_hz: float | None = None,
    timeout_s: float = ProcessSettings.timeout_s,
    progress: Progress | None = None,
) -> Measured:
    """Returns frames to make a budget of.

    Args:
        model: a model or plan; with `pipeline`, given to its function.
        samples: recorded latencies.
        pipeline: `package.module:function`.
        engine: runtime, threads, input_shape and data.
        frames: how many to time.
        rate_hz: of the camera; that of a report.json, or else 30, where it is None.
        timeout_s: see `ProcessSettings`.
        progress: called with (what, done, total).

    Raises:
        InputError: nothing, or more than one thing, was named; or its frames tell nothing.
    """
    if (samples is not None) == (model is not None or pipeline is not None):
        raise InputError(
            "what to measure is not clear", "either MODEL or --pipeline, or else --samples"
        )
    if samples is not None:
        return _read_samples(samples, rate_hz)
    if model is not None:
        check_network(model)
        if pipeline is None:
            warn_of_overflow(model, engine["runtime"])
    rate_hz = rate_hz or FrameBudget.rate_hz
    recipe = make_recipe(model, pipeline, None, engine, Path())
    measure = MeasureSettings(frames=frames, rate_hz=rate_hz)
    process = ProcessSettings(measure=measure, timeout_s=timeout_s)
    experiment = measure_in_processes(recipe, process, progress)
    _warn_of_disturbance(experiment.environment)
    return Measured(run=experiment.paced, rate_hz=rate_hz, heads=_heads_of(model))


def _read_samples(path: Path, rate_hz: float | None) -> Measured:
    recording = read_recording(path, rate_hz=rate_hz)
    run, found = recording.run, recording.circumstances
    defects = run.find_defects() or (() if len(run.service_ns) else ("every frame was dropped",))
    if defects:
        raise InputError(
            f"no budget can be made of {path}: {'; '.join(defects)}", "frames as they were measured"
        )
    if found is None or found.rate_hz is None:
        return Measured(run=run, rate_hz=rate_hz or FrameBudget.rate_hz)
    if rate_hz not in (None, found.rate_hz):
        raise InputError(
            f"--rate-hz is {rate_hz:g}, but the frames of {path} came at {found.rate_hz:g} Hz",
            "the rate at which they were measured",
            "leave the option out",
        )
    if found.environment is not None:
        _warn_of_disturbance(found.environment)
    return Measured(run=run, rate_hz=found.rate_hz)


def _warn_of_disturbance(environment: Environment) -> None:
    found = [check for check in environment.checks if check.verdict == "invalid"]
    if found:
        _log.warning(
            "the machine was too disturbed to measure a budget on (%s): free it and measure again, "
            "or lower these limits by hand",
            "; ".join(f"{check.name}: {check.detail}" for check in found),
        )


def _heads_of(model: Path | None) -> tuple[str, ...]:
    if model is None or model.suffix.lower() != ".onnx":
        return ()
    import onnx

    return tuple(read_heads(onnx.load(model, load_external_data=False)))
