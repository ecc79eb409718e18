"""The process that measures: `python -m latency_budget.child`, one request on its standard input.

A fresh process holds nothing but the runtime and the stages: no threads of other libraries, no
garbage of earlier work. What it has to say goes out as lines of JSON on its standard output,
between the timed parts; what it measured goes into the file that the request names.
"""

import ctypes
import faulthandler
import json
import os
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

from artifacts.errors import FramefitError, InputError
from artifacts.own_packages import put_first
from latency_budget.clock import MonotonicClock
from latency_budget.experiment import Experiment, Parts, run_experiment
from latency_budget.measure import MeasureSettings
from latency_budget.priority import Scheduling
from latency_budget.pulse import Pulse
from latency_budget.run import Run
from latency_budget.run_file import save_runs
from latency_budget.stage import check_stages
from latency_budget.stop_rule import SequentialStop
from latency_budget.workload import Recipe

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Follows the request; returns 0, or 1 after telling the error."""
    begun_ns = MonotonicClock().now_ns()
    put_first()
    _end_with_parent()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    request = json.load(sys.stdin)
    channel = _take_channel()
    try:
        _follow(request, begun_ns, channel)
    except FramefitError as error:
        words = {"what": error.what, "expected": error.expected, "fix": error.fix}
        _tell(channel, {"error": words, "kind": type(error).__name__})
        return 1
    _tell(channel, {"measured": True})
    return 0


def _end_with_parent() -> None:
    """A measurement that nobody waits for any more would disturb the next one; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _take_channel() -> TextIO:
    """Returns standard output for messages; whatever else is printed there goes to stderr.

    That is so for a stage's C library and for the processes that a stage starts, too.
    """
    sys.stdout.flush()
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = sys.stderr
    return channel


def _follow(request: dict[str, Any], begun_ns: int, channel: TextIO) -> None:
    clock = MonotonicClock()
    scheduling = Scheduling(**_tuples(request["scheduling"])).apply()
    load_from_ns = clock.now_ns()
    workload = Recipe(**request["recipe"]).open()
    loaded_ns = clock.now_ns()
    _tell(channel, {"stages": check_stages(workload.stages)})
    values = dict(request["settings"])
    stop = values.pop("stop")
    settings = MeasureSettings(
        **values,
        stop=SequentialStop(**stop) if stop else None,
        pulse=Pulse(request["pulse"]),
    )
    try:
        experiment = run_experiment(
            workload.stages,
            workload.frames,
            settings,
            is_whole_frame=workload.is_whole_frame,
            parts=Parts(**request["parts"]),
            progress=lambda what, done, total: _tell(channel, {"progress": [what, done, total]}),
        )
    finally:
        workload.close()
    cold = replace(
        experiment.cold[0],
        start_ns=begun_ns - request["called_ns"],
        load_ns=loaded_ns - load_from_ns,
    )
    experiment = replace(
        experiment,
        cold=(cold,),
        scheduling=scheduling,
        session=dict(workload.session) if workload.session is not None else None,
        runtime=workload.runtime,
    )
    save_experiment(Path(request["out"]), experiment)


def save_experiment(path: Path, experiment: Experiment) -> None:
    """Writes an experiment of one process; `restarts.load_experiment` reads it.

    Raises:
        InputError: the disk is full.
    """
    runs: dict[str, Run] = {"closed": experiment.closed, "paced": experiment.paced}
    if experiment.other is not None:
        runs["other"] = experiment.other
    facts = {
        "checks": [asdict(check) for check in experiment.environment.checks],
        "machine": experiment.environment.machine,
        "cold": [asdict(cold) for cold in experiment.cold],
        "wakeup_errors_ns": experiment.harness.wakeup_errors_ns.tolist(),
        "frame_cost_ns": experiment.harness.frame_cost_ns,
        "scheduling": experiment.scheduling,
        "session": experiment.session,
        "runtime": experiment.runtime,
    }
    try:
        save_runs(path, runs, facts)
    except OSError as error:  # Standard error is a file beside it, and as full.
        raise InputError(
            f"cannot write what was measured to {path.parent}: {error.strerror or error}",
            "a folder for temporary files with free space",
            "name one in TMPDIR",
        ) from error


def _tell(channel: TextIO, message: dict[str, Any]) -> None:
    channel.write(json.dumps(message) + "\n")
    channel.flush()


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(item) if isinstance(item, list) else item for key, item in values.items()}


if __name__ == "__main__":
    sys.exit(main())
