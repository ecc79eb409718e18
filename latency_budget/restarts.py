"""Measures in processes of their own, several times over: what one cannot tell about itself.

Memory layout, thread placement and clocks differ from one start to the next, so the spread between
processes is a figure of its own (Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time",
ISMM 2013). Two variants are measured in turns, A B B A, so that a slow drift meets both.
"""

import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from artifacts import errors
from artifacts.errors import DeviceFaultError
from latency_budget.environment import Check, Environment, join_environments
from latency_budget.experiment import ColdStart, Experiment, Harness, Parts, Progress
from latency_budget.measure import MeasureSettings
from latency_budget.measuring_process import Patience, measure_in_child
from latency_budget.priority import Scheduling
from latency_budget.run import Run
from latency_budget.run_file import load_runs
from latency_budget.stop_rule import SequentialStop
from latency_budget.workload import Recipe

LONGEST_TIMEOUT_S = 1e6
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
        timeout_s: the longest that a stage may take for a frame; ten times as long for the load
            and the first ten frames.
    """

    measure: MeasureSettings
    restarts: int = 1
    parts: Parts = field(default_factory=Parts)
    scheduling: Scheduling = field(default_factory=Scheduling)
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.timeout_s <= LONGEST_TIMEOUT_S:
            raise errors.InputError(
                f"the timeout is {self.timeout_s:g} s", f"above 0, up to {LONGEST_TIMEOUT_S:g}"
            )
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
        InputError: a stage does not return.
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
        request = _make_request(recipe, settings, number, out)
        patience = Patience(
            frame_s=settings.timeout_s, period_s=1 / float(settings.measure.rate_hz)
        )
        measure_in_child(request, patience, progress, label)
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
