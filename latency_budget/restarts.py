"""Measures in processes of their own, several times over: what one cannot tell about itself.

Memory layout, thread placement and clocks differ from one start to the next, so the spread between
processes is a figure of its own (Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time",
ISMM 2013). Two variants are measured in turns, A B B A, so that a slow drift meets both.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from artifacts import errors
from artifacts.errors import DeviceFaultError, FramefitError
from latency_budget.clock import MonotonicClock
from latency_budget.environment import Check, Environment, join_environments
from latency_budget.experiment import ColdStart, Experiment, Harness, Parts, Progress
from latency_budget.measure import MeasureSettings
from latency_budget.priority import Scheduling
from latency_budget.run import Run
from latency_budget.run_file import load_runs
from latency_budget.stop_rule import SequentialStop
from latency_budget.workload import Recipe

ENDING_S = 5.0
_REPEATED = Parts(control=30, closed=0, other=0)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """How a workload is measured in processes of its own.

    Attributes:
        measure: as in one process; `frames` is the sum over all processes, `clock`, `probe` and
            `held_frames` are not handed over.
        restarts: how many processes, one after the other.
        parts: frames of the other parts, in the first process; later ones have a short control.
        scheduling: processors and priority.
    """

    measure: MeasureSettings
    restarts: int = 1
    parts: Parts = field(default_factory=Parts)
    scheduling: Scheduling = field(default_factory=Scheduling)

    def __post_init__(self) -> None:
        if not 1 <= self.restarts <= self.measure.frames:
            raise errors.InputError(
                f"{self.restarts} restarts for {self.measure.frames} frames",
                "at least 1, and a frame for each",
            )

    def share(self, number: int) -> int:
        """Returns the frames of process `number`, so that all together have `measure.frames`."""
        frames, count = self.measure.frames, self.restarts
        return frames // count + (number < frames % count)


def measure_in_processes(
    recipe: Recipe, settings: ProcessSettings, progress: Progress | None = None
) -> Experiment:
    """Measures a workload in fresh processes and joins what they measured.

    Args:
        recipe: how each process makes the workload.
        settings: how to measure.
        progress: called with (what, done, total) between the parts.

    Raises:
        DeviceFaultError: the GPU failed in a process, and again in the one that took its place.
        FramefitError: what a process raised, of the same kind; or a process that died.
    """
    return measure_in_turns({"": recipe}, settings, progress)[""]


def measure_in_turns(
    recipes: Mapping[str, Recipe], settings: ProcessSettings, progress: Progress | None = None
) -> dict[str, Experiment]:
    """Measures several workloads in turns, A B B A A B …, `settings.restarts` processes of each.

    Args:
        recipes: by name.
        settings: how to measure each of them.
        progress: called with (what, done, total) between the parts.

    Returns:
        the joined measurement of each.
    """
    bound = {name: recipe.bind() for name, recipe in recipes.items()}
    found: dict[str, list[Experiment]] = {name: [] for name in bound}
    for number in range(settings.restarts):
        names = list(bound) if number % 2 == 0 else list(bound)[::-1]
        for name in names:
            label = f"{name}: " if name else ""
            label += f"process {number + 1}/{settings.restarts}: " if settings.restarts > 1 else ""
            measure = partial(_measure_once, bound[name], settings, number, progress, label)
            found[name].append(_try_twice(measure))
    return {name: join_experiments(parts) for name, parts in found.items()}


def join_experiments(parts: list[Experiment]) -> Experiment:
    """Returns the measurements of several processes as one; closed loop is the first one's."""
    first = parts[0]
    if len(parts) == 1:
        return first
    return replace(
        first,
        paced=Run.join([part.paced for part in parts]),
        environment=join_environments([part.environment for part in parts]),
        cold=tuple(cold for part in parts for cold in part.cold),
        harness=Harness(
            wakeup_errors_ns=np.concatenate([part.harness.wakeup_errors_ns for part in parts]),
            frame_cost_ns=first.harness.frame_cost_ns,
        ),
    )


def load_experiment(path: Path) -> Experiment:
    """Reads what `child.save_experiment` wrote."""
    runs, facts = load_runs(path)
    return Experiment(
        closed=runs["closed"],
        paced=runs["paced"],
        environment=Environment(
            tuple(Check(**check) for check in facts["checks"]), facts["machine"]
        ),
        other=runs.get("other"),
        cold=tuple(
            ColdStart(**(cold | {"first_ns": tuple(cold["first_ns"])})) for cold in facts["cold"]
        ),
        harness=Harness(
            wakeup_errors_ns=np.asarray(facts["wakeup_errors_ns"], np.int64),
            frame_cost_ns=facts["frame_cost_ns"],
        ),
        scheduling=facts["scheduling"],
        session=facts["session"],
        runtime=facts["runtime"],
    )


def _try_twice(measure: Callable[[], Experiment]) -> Experiment:
    """Measures in one process, and once more in a fresh one where the GPU failed under way."""
    try:
        return measure()
    except DeviceFaultError as error:
        told = f"the GPU failed under way and its frames were measured again: {error}"
    _log.warning(told)
    experiment = measure()
    environment = experiment.environment
    checks = (*environment.checks, Check("gpu fault", "warn", told))
    return replace(experiment, environment=replace(environment, checks=checks))


def _measure_once(
    recipe: Recipe,
    settings: ProcessSettings,
    number: int,
    progress: Progress | None,
    label: str,
) -> Experiment:
    with tempfile.TemporaryDirectory(prefix="framefit-") as folder:
        out = Path(folder) / "measured.npz"
        _run_child(_make_request(recipe, settings, number, out), progress, label)
        return load_experiment(out)


def _make_request(
    recipe: Recipe, settings: ProcessSettings, number: int, out: Path
) -> dict[str, Any]:
    measure = settings.measure
    stop = measure.stop if isinstance(measure.stop, SequentialStop) else None
    return {
        "recipe": asdict(recipe),
        "settings": {
            "frames": settings.share(number),
            "rate_hz": measure.rate_hz,
            "warmup_frames": measure.warmup_frames,
            "policy": measure.policy,
            "phase_ns": measure.phase_ns,
            "stop": asdict(stop) if stop and settings.restarts == 1 else None,
        },
        "parts": asdict(settings.parts if number == 0 else _later(settings.parts)),
        "scheduling": asdict(settings.scheduling),
        "out": str(out),
    }


def _later(parts: Parts) -> Parts:
    return replace(_REPEATED, control=min(parts.control, _REPEATED.control))


def _run_child(request: dict[str, Any], progress: Progress | None, label: str) -> None:
    request["called_ns"] = MonotonicClock().now_ns()
    command = [sys.executable, "-P", "-m", "latency_budget.child"]
    with tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace") as complaints:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env=_child_environment(),
            start_new_session=True,
        )
        try:
            is_measured = _listen(child, request, progress, label)
        finally:
            _end(child)
        if not is_measured:
            complaints.seek(0)
            raise _died(child.returncode, complaints.read())


def _end(child: "subprocess.Popen[str]") -> None:
    """Kills the process if it has not ended, and what it started."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _listen(
    child: "subprocess.Popen[str]",
    request: dict[str, Any],
    progress: Progress | None,
    label: str,
) -> bool:
    """Follows the process; returns whether it said that its measurement is written.

    It is given some time to end then; a thread that a pipeline left behind would keep it forever.
    """
    if child.stdin is None or child.stdout is None:
        raise FramefitError("the measuring process has no pipes")
    try:
        with child.stdin as stream:
            json.dump(request, stream)
    except BrokenPipeError:
        pass  # The process ended at once; its exit code and last words are told by the caller.
    with child.stdout as stream:
        for line in stream:
            message = json.loads(line)
            if "error" in message:
                child.wait()
                raise _error_of(message)
            if "measured" in message:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(ENDING_S)
                return True
            if progress is not None:
                what, done, total = message["progress"]
                progress(f"{label}{what}", done, total)
    child.wait()
    return False


def _child_environment() -> dict[str, str]:
    """The child finds our packages where this process found them, from any folder."""
    home = str(Path(__file__).parents[1])
    inherited = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in (home, inherited) if part)}


def _error_of(message: dict[str, Any]) -> FramefitError:
    kind = getattr(errors, message["kind"], FramefitError)
    if kind in (
        errors.InputError,
        errors.UnsafeFileError,
        errors.UnavailableError,
        errors.DeviceFaultError,
    ):
        return kind(**message["error"])
    error = FramefitError(**message["error"])
    if isinstance(kind, type) and issubclass(kind, errors.UnavailableError):
        return errors.UnavailableError(**message["error"])
    return error


def _died(code: int, complaints: str) -> FramefitError:
    words = [line for line in complaints.strip().splitlines() if line.strip()]
    last = words[-1] if words else "it said nothing"
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return FramefitError(f"the measuring process ended {how} before it was done: {last}")
