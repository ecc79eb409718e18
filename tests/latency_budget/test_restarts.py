import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from artifacts.errors import DeviceFaultError, FramefitError, InputError, UnsafeFileError
from latency_budget import measuring_process
from latency_budget.budget import Budget, HeadContract
from latency_budget.check import CheckSettings, Subject, check_subject
from latency_budget.environment import Check, Environment
from latency_budget.experiment import Experiment, Parts
from latency_budget.measure import MeasureSettings
from latency_budget.phase_sweep import PhaseRow, describe_sweep, summarise_sweep, sweep_phases
from latency_budget.priority import Scheduling
from latency_budget.regression import compare_interleaved
from latency_budget.restarts import ProcessSettings, measure_in_processes, measure_in_turns
from latency_budget.run import Run
from latency_budget.run_file import load_runs, save_runs
from latency_budget.stop_rule import SequentialStop
from latency_budget.tiers import Tier
from latency_budget.verdict import Verdict, judge
from latency_budget.workload import Recipe

MS = 1_000_000
MODULE = """
import os, resource, signal, subprocess, sys, threading, time
from artifacts.errors import DeviceFaultError
from latency_budget import Stage
from latency_budget.workload import Workload

def frame(spend_ms=1.0, note=None):
    if note:
        with open(note, "a") as stream:
            stream.write(f"{os.getpid()} {'torch' in sys.modules} {spend_ms}\\n")
    end = lambda x: time.sleep(spend_ms / 1e3)
    return Workload(stages=[Stage("work", end)], frames=[0], session={"threads": 1})

def broken():
    def work(x):
        raise RuntimeError("no camera")
    return Workload(stages=[Stage("work", work)], frames=[0])

def loud():
    def work(x):
        os.write(1, b"from a C library\\n")
        subprocess.run(["echo", "from a process"], check=True)
        return x
    return Workload(stages=[Stage("work", work)], frames=[0])

def leaves():
    def work(x):
        sys.exit(0)
    return Workload(stages=[Stage("work", work)], frames=[0])

def gone():
    os._exit(0)

def held():
    threading.Thread(target=threading.Event().wait).start()
    return frame()

def hung(note):
    child = subprocess.Popen(["sleep", "600"])
    with open(note, "w") as stream:
        stream.write(f"{os.getpid()} {child.pid}\\n")
    child.wait()

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def crashes():
    return Workload(stages=[Stage("work", lambda payload: killed())], frames=[None])

def overflows():
    work = lambda payload: os.kill(os.getpid(), signal.SIGSEGV)
    return Workload(stages=[Stage("work", work)], frames=[None])

def exits():
    return Workload(stages=[Stage("work", lambda payload: os._exit(3))], frames=[None])

def unloadable():
    os.abort()

def full():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    return frame()

def nothing():
    return 3

def lost_gpu(note, faults):
    # Loses the GPU on the fourth frame of the first `faults` processes.
    with open(note, "a") as stream:
        stream.write(f"{os.getpid()}\\n")
    with open(note) as stream:
        is_lost = len(stream.readlines()) <= faults
    seen = []
    def work(x):
        seen.append(x)
        if is_lost and len(seen) > 3:
            raise DeviceFaultError("cudaStreamSynchronize failed: illegal memory access")
    return Workload(stages=[Stage("work", work)], frames=[0])
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "workload_for_test.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def recipe(name="frame", **arguments):
    return Recipe(function=f"workload_for_test:{name}", arguments=arguments)


def settings(frames=30, restarts=1, **values):
    measure = MeasureSettings(frames=frames, rate_hz=200, warmup_frames=2, **values)
    return ProcessSettings(
        measure=measure, restarts=restarts, parts=Parts(control=5, closed=10, other=5)
    )


def test_each_restart_is_a_process_of_its_own_without_torch(tmp_path):
    note = tmp_path / "pids"
    experiment = measure_in_processes(recipe(note=str(note)), settings(31, 3))
    lines = [line.split() for line in note.read_text().splitlines()]
    assert len({pid for pid, _, _ in lines} | {str(os.getpid())}) == 4
    assert {has_torch for _, has_torch, _ in lines} == {"False"}
    assert experiment.paced.count == 31
    assert [part.count for part in experiment.paced.split()] == [11, 10, 10]
    assert experiment.process_spread is not None
    assert len(experiment.cold) == 3
    assert all(cold.load_ns > 0 and len(cold.first_ns) == 10 for cold in experiment.cold)
    assert experiment.cold[0].start_ns > 0
    assert experiment.paced.find_defects() == ()
    assert experiment.session == {"threads": 1}
    assert (experiment.paced.latency_ns >= MS).all()
    assert experiment.paced.counters.shape == (31, 5)


def test_a_process_that_lost_the_gpu_is_replaced_once_and_that_is_told(tmp_path, caplog):
    note = tmp_path / "pids"
    experiment = measure_in_processes(recipe("lost_gpu", note=str(note), faults=1), settings(30, 2))
    assert len(note.read_text().split()) == 3
    assert experiment.paced.count == 30
    (told,) = [check for check in experiment.environment.checks if check.name == "gpu fault"]
    assert told.verdict == "warn"
    assert "illegal memory access" in told.detail
    assert "measured again" in caplog.text


def test_a_gpu_that_is_lost_again_is_an_internal_error_and_the_old_report_stays(
    tmp_path, monkeypatch
):
    note = tmp_path / "pids"
    lost = recipe("lost_gpu", note=str(note), faults=9)
    with pytest.raises(DeviceFaultError, match="illegal memory access") as caught:
        measure_in_processes(lost, settings())
    assert caught.value.exit_code == 5
    assert len(note.read_text().split()) == 2
    from framefit import budget_job
    from framefit.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(budget_job, "make_recipe", lambda *arguments: lost)
    old = tmp_path / "report" / "report.json"
    old.parent.mkdir()
    old.write_text("the report of an earlier check")
    (tmp_path / "model.plan").write_bytes(b"network")
    budget = str(Path(__file__).parents[2] / "examples" / "budget.toml")
    check = ["budget", "check", "--budget", budget, "model.plan", "--frames", "30"]
    assert main([*check, "--out", "report"]) == 5
    assert old.read_text() == "the report of an earlier check"


def test_an_artifact_that_changes_under_way_is_refused(tmp_path):
    model = tmp_path / "m.onnx"
    model.write_bytes(b"one")
    bound = Recipe(function="workload_for_test:frame", artifact=str(model)).bind()
    assert measure_in_processes(bound, settings(5)).paced.count == 5
    model.write_bytes(b"two")
    with pytest.raises(UnsafeFileError, match="changed while it was measured"):
        measure_in_processes(bound, settings(5))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("broken", InputError, "stage 'work' raised RuntimeError on frame 0: no camera"),
        ("nothing", InputError, "returned a int"),
        ("killed", FramefitError, "ended by signal 9"),
        ("gone", FramefitError, "ended with exit code 0 before it was done"),
        ("crashes", FramefitError, "ended by signal 9 in stage 'work' on frame 0 of 'first frames"),
        ("overflows", InputError, r"signal 11 \(SIGSEGV\) in stage 'work' on frame 0 of 'first"),
        ("exits", InputError, "ended with exit code 3 in stage 'work' on frame 0"),
        ("unloadable", InputError, r"signal 6 \(SIGABRT\) before .*; expected stages and frames"),
        ("full", InputError, "cannot write what was measured to .*: File too large"),
        ("leaves", InputError, "stage 'work' raised SystemExit on frame 0: 0"),
        ("absent", FramefitError, "has no attribute 'absent'"),
    ],
)
def test_what_a_process_raises_is_told_in_one_line(name, kind, message):
    with pytest.raises(kind, match=message):
        measure_in_processes(recipe(name), settings(5))


def test_what_stages_print_is_no_message():
    assert measure_in_processes(recipe("loud"), settings(5)).paced.count == 5


def test_a_thread_left_behind_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(measuring_process, "ENDING_S", 0.2)
    assert measure_in_processes(recipe("held"), settings(5)).paced.count == 5


def is_running(pid):
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and the kernel ends the child")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_measurement_ends_with_the_one_that_asked(tmp_path, number):
    """Shells let what runs in their background ignore SIGINT, the tests among it."""
    note = tmp_path / "pids"
    code = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from latency_budget.restarts import *\n"
        f"recipe = Recipe(function='workload_for_test:hung', arguments={{'note': '{note}'}})\n"
        "measure_in_processes(recipe, ProcessSettings(measure=MeasureSettings(frames=5)))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    command = [sys.executable, "-c", code]
    asker = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while not (note.exists() and note.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child, grandchild = map(int, note.read_text().split())
    asker.send_signal(number)
    asker.wait()
    while is_running(child) or (number == signal.SIGINT and is_running(grandchild)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if is_running(grandchild):
        os.kill(grandchild, signal.SIGKILL)


def test_two_variants_are_measured_in_turns(tmp_path):
    note = tmp_path / "order"
    recipes = {
        "a": recipe(note=str(note), spend_ms=1.0),
        "b": recipe(note=str(note), spend_ms=2.0),
    }
    found = measure_in_turns(recipes, settings(20, 4))
    order = [line.split()[2] for line in note.read_text().splitlines()]
    assert order == ["1.0", "2.0", "2.0", "1.0"] * 2
    assert found["b"].paced.service_ns.min() >= 2 * MS


def test_a_run_that_surely_fails_ends_early():
    stop = SequentialStop(deadline_ns=MS // 2, min_frames=1000)
    experiment = measure_in_processes(recipe(), settings(900, stop=stop))
    assert experiment.paced.count == 30


def test_priority_that_is_refused_falls_back_and_says_so(monkeypatch):
    def refuse(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(os, "setpriority", refuse)
    got = Scheduling(priority="realtime").apply()["priority"]
    assert got["got"] == "normal"
    assert got["refused"] == [
        "realtime: Operation not permitted",
        "high: Operation not permitted",
    ]
    with pytest.raises(InputError):
        Scheduling(priority="highest")


def test_pinning_is_asked_for_and_told(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: asked.append(cpus))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1})
    assert Scheduling(cpus=(1,)).apply()["cpus"] == {"asked": [1], "got": [1]}
    assert asked == [(1,)]


def test_runs_survive_a_file_unchanged(tmp_path):
    run = Run.join([Run.from_latencies(np.full(5, MS)), Run.from_latencies(np.full(4, 2 * MS))])
    save_runs(tmp_path / "r.npz", {"paced": run}, {"a": [1]})
    runs, facts = load_runs(tmp_path / "r.npz")
    assert facts == {"a": [1]}
    assert (runs["paced"].latency_ns == run.latency_ns).all()
    assert runs["paced"].origins == (0, 5)
    assert json.dumps(runs["paced"].stage_names) == "[]"


def joined(level, spread, seed, slow=0.0, frames=2000):
    rng = np.random.default_rng(seed)
    parts = []
    for offset in np.linspace(-spread, spread, 5):
        base = rng.normal(20 * level * (1 + offset), 0.2, frames)
        parts.append(np.where(rng.random(frames) < slow, 1.5 * base, base))
    runs = [Run.from_latencies((part * MS).astype(np.int64)) for part in parts]
    shifts = [number * frames * 10**9 for number in range(len(runs))]
    return Run.join(
        [
            replace(run, arrival_ns=run.arrival_ns + shift, marks_ns=run.marks_ns + shift)
            for run, shift in zip(runs, shifts, strict=True)
        ]
    )


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (joined(1.0, 0.0, 1), joined(1.0, 0.0, 2), "pass"),
        (joined(1.0, 0.0, 1), joined(1.02, 0.0, 2), "pass"),
        (joined(1.0, 0.0, 1), joined(1.05, 0.0, 2), "fail"),
        (joined(1.0, 0.03, 1), joined(1.02, 0.03, 2), "pass"),
        (joined(1.0, 0.0, 1), joined(1.0, 0.0, 2, slow=0.03), "fail"),
        (joined(1.0, 0.0, 1), joined(0.8, 0.0, 2), "pass"),
    ],
)
def test_side_by_side_only_more_than_the_spread_is_slower(before, after, outcome):
    assert compare_interleaved(before, after).outcome == outcome


def test_a_slower_build_side_by_side_fails_the_check():
    slower = judge(joined(1.05, 0.0, 2), Budget(), reference=joined(1.0, 0.0, 1))
    assert slower.verdict is Verdict.FAIL
    assert "no slower side by side" in {
        gate.name for gate in slower.gates if gate.verdict is Verdict.FAIL
    }


def measured_as(run, checks=(), session=None):
    empty = Run.from_latencies(np.empty(0, np.int64))
    environment = Environment(tuple(Check(name, "invalid", "9 %") for name in checks))
    return Experiment(empty, run, environment, session=session, runtime="openvino")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"checks": ["steal"]}, "environment: steal: 9 %"),
        ({"session": {"precision": {"asked": "int8", "got": "f32"}}}, "asked versus got"),
    ],
)
def test_a_build_before_that_was_measured_unfit_proves_nothing(
    tmp_path, monkeypatch, values, reason
):
    """Its frames may be slow for that reason, and the newer build no faster."""
    found = {
        "before": measured_as(joined(1.0, 0.0, 1), **values),
        "after": measured_as(joined(1.0, 0.0, 2)),
    }
    monkeypatch.setattr("latency_budget.check.measure_in_turns", lambda *_: found)
    monkeypatch.chdir(tmp_path)
    for name in ("old.onnx", "new.onnx"):
        (tmp_path / name).write_bytes(name.encode())
    builds = [Recipe(function="f:f", artifact=str(tmp_path / n)) for n in ("new.onnx", "old.onnx")]
    subject = Subject(
        name="new.onnx",
        recipe=builds[0],
        against=builds[1],
        artifact=tmp_path / "new.onnx",
        runtime="openvino",
    )
    checked = CheckSettings(budget=Budget(), tier=Tier(frames=2000), sweep_frames=0)
    report = check_subject(subject, checked)
    gate = next(gate for gate in report.gates if gate.name == "no slower side by side")
    assert gate.verdict is Verdict.INVALID
    assert reason in gate.detail
    assert "the very file" not in " ".join(report.notes)
    same = check_subject(replace(subject, against=builds[0]), checked)
    assert "the very file" in " ".join(same.notes)


def test_the_plan_of_a_network_alone_names_the_contracts_of_its_heads(tmp_path, monkeypatch):
    network = Run.from_latencies(np.full(400, MS), stages_ns={"network": np.full(400, MS)})
    found = {"": measured_as(replace(network, is_whole_frame=False))}
    monkeypatch.setattr("latency_budget.check.measure_in_turns", lambda *_: found)
    quality = {"road": {"metric": "mIoU", "reference": 0.8, "candidate": 0.8}}
    (tmp_path / "quality.json").write_text(json.dumps(quality))
    contract = HeadContract(metric="mIoU", max_drop=0.25)
    budget = Budget(heads={"road": contract, "lanes": contract})
    subject = Subject(name="network", recipe=recipe(), stage_names=("network",))
    checked = CheckSettings(budget=budget, tier=Tier(frames=400), quality=tmp_path / "quality.json")
    variant = check_subject(subject, checked).variants[-1]
    planned = variant.details["plan"]["values"]["heads"]
    assert {name: values["max_drop"] for name, values in planned.items()} == {"road": 0.25}


def test_a_sweep_is_told_in_every_report(tmp_path, monkeypatch):
    found = {"": measured_as(joined(1.0, 0.0, 2))}
    rows = [PhaseRow(phase=0.0, rate_hz=30, run=joined(1.0, 0.0, 1))]
    monkeypatch.setattr("latency_budget.check.measure_in_turns", lambda *_: found)
    monkeypatch.setattr("latency_budget.check.sweep_phases", lambda *_: rows)
    subject = Subject(name="frame", recipe=recipe())
    checked = CheckSettings(budget=Budget(), tier=Tier(frames=2000), sweep_frames=2000)
    assert "Phase sweep, 1 settings of 10000 frames" in check_subject(subject, checked).notes[-1]


def test_a_sweep_moves_the_arrivals_and_the_rate():
    rows = sweep_phases(recipe(spend_ms=0.1), settings(5), frames=12)
    assert [(row.phase, row.rate_hz) for row in rows] == [
        (0.0, 200), (0.25, 200), (0.5, 200), (0.75, 200), (0.0, 198), (0.0, 202),
    ]  # fmt: skip
    assert np.diff(rows[-1].run.arrival_ns).max() in (4_950_495, 4_950_496)
    described = describe_sweep(rows)
    assert described["frames"] == 12
    assert described["slower"] is None
    assert "not compared (368 frames each" in summarise_sweep(described)


def test_a_phase_that_beats_with_something_is_named():
    quiet = joined(1.0, 0.0, 1)
    beating = joined(1.0, 0.0, 2, slow=0.05)
    rows = [PhaseRow(phase=p, rate_hz=30, run=run) for p, run in ((0, quiet), (0.5, beating))]
    described = describe_sweep(rows)
    assert described["slower"] == ["phase 0.5 at 30 Hz"]
    assert "slower than the first one: phase 0.5 at 30 Hz" in summarise_sweep(described)
    alike = [replace(row, run=quiet) for row in rows]
    assert "slower than the first one: none" in summarise_sweep(describe_sweep(alike))


def test_a_signal_handler_is_put_back():
    before = signal.getsignal(signal.SIGCONT)
    measure_in_processes(recipe(), settings(5))
    assert signal.getsignal(signal.SIGCONT) is before
    assert "workload_for_test" not in sys.modules
