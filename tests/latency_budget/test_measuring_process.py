"""Processes that hang, flood or leave helpers behind: each ends in time, with one clear line."""

import os
import textwrap
import time
from pathlib import Path

import pytest

from artifacts.errors import InputError
from latency_budget import measuring_process
from latency_budget.clock import MonotonicClock
from latency_budget.experiment import Parts
from latency_budget.last_words import LastWords
from latency_budget.measure import MeasureSettings
from latency_budget.pulse import OUTSIDE, find_place, make_pulse
from latency_budget.restarts import ProcessSettings, measure_in_processes
from latency_budget.workload import Recipe

MODULE = """
import ctypes, os, subprocess, threading, time
from pathlib import Path
from latency_budget import Stage
from latency_budget.workload import Workload

def stuck(at, how, note=None):
    seen = []
    if note:
        with open(note, "w") as stream:
            stream.write(str(subprocess.Popen(["sleep", "120"]).pid))
    def work(x):
        seen.append(x)
        if len(seen) > at:
            how_to_wait(how)
    return Workload(stages=[Stage("look", lambda x: x), Stage("work", work)], frames=[0])

def how_to_wait(how):
    Path("counted").touch()
    if how == "python":
        threading.Event().wait()
    ctypes.PyDLL(None).sleep(1000)  # With Python's lock held, as a C library may.

def slow_at_first():
    Path("counted").touch()
    time.sleep(1.2)
    def work(x):
        if Path("counted").exists():
            time.sleep(1.2)
            Path("counted").unlink()
    return Workload(stages=[Stage("work", work)], frames=[0])

def load():
    Path("counted").touch()
    threading.Event().wait()

def silent_camera():
    def frames():
        Path("counted").touch()
        threading.Event().wait()
        yield 1
    return Workload(stages=[Stage("work", lambda x: x)], frames=frames())

def raises_with_a_thread_left():
    threading.Thread(target=threading.Event().wait).start()
    def work(x):
        raise ValueError("boom")
    return Workload(stages=[Stage("work", work)], frames=[0])

def helped(note):
    with open(note, "w") as stream:
        stream.write(str(subprocess.Popen(["sleep", "120"]).pid))
    return Workload(stages=[Stage("work", lambda x: x)], frames=[0])
"""


class CountingClock(MonotonicClock):
    """Moves only while the file `counted` exists, so that a busy machine uses up no patience."""

    def __init__(self):
        super().__init__()
        machine_ns = self.now_ns
        self.now_ns = lambda: machine_ns() if Path("counted").exists() else 0


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workload_that_hangs.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(measuring_process, "MonotonicClock", CountingClock)


def measure(name, timeout_s=0.5, frames=20, **arguments):
    recipe = Recipe(function=f"workload_that_hangs:{name}", arguments=arguments)
    settings = MeasureSettings(frames=frames, rate_hz=200, warmup_frames=2)
    parts = Parts(control=5, closed=10, other=5)
    return measure_in_processes(
        recipe, ProcessSettings(measure=settings, parts=parts, timeout_s=timeout_s)
    )


def is_running(pid):
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("how", ["python", "c"])
def test_a_stage_that_never_returns_is_named_and_everything_is_killed(tmp_path, how):
    note = tmp_path / "helper"
    with pytest.raises(InputError, match="stage 'work' has not returned from frame 3") as error:
        measure("stuck", at=10 + 2 + 10 + 2 + 3, how=how, note=str(note))
    assert "20 frames at 200 Hz" in str(error.value)
    assert "in how_to_wait, workload_that_hangs.py line" in str(error.value)
    assert "--timeout" in str(error.value)
    assert error.value.exit_code == 2
    assert not is_running(int(note.read_text()))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("load", r"did not make its stages in .*\(it is in load, "),
        ("silent_camera", "did not give its first frame"),
    ],
)
def test_what_never_makes_its_stages_or_frames_is_told_apart(name, message):
    with pytest.raises(InputError, match=message):
        measure(name, timeout_s=0.3)


def test_the_load_and_the_first_frames_have_more_time():
    assert measure("slow_at_first").paced.count == 20


def test_an_error_is_told_though_a_thread_is_left_behind(monkeypatch):
    monkeypatch.setattr(measuring_process, "ENDING_S", 0.2)
    with pytest.raises(InputError, match="boom"):
        measure("raises_with_a_thread_left")


def test_helpers_do_not_outlive_the_measurement(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring_process, "_HELPERS_LOOKS", 2)
    note = tmp_path / "helper"
    assert measure("helped", note=str(note)).paced.count == 20
    deadline = time.monotonic() + 60
    while is_running(int(note.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_timeout_is_a_time(seconds):
    with pytest.raises(InputError, match="the timeout is"):
        ProcessSettings(measure=MeasureSettings(), timeout_s=seconds)


def test_a_pulse_names_the_frame_and_the_stage():
    pulse, descriptor = make_pulse()
    os.close(descriptor)
    assert find_place(pulse.cell[0], ("a", "b")) is None
    places = [find_place(value, ("a", "b")) for value in range(4)]
    assert [(place.frame, place.stage) for place in places] == [
        (0, "a"),
        (0, "b"),
        (0, ""),
        (1, "a"),
    ]
    assert find_place(OUTSIDE, ()) is None
    pulse.close()


def test_a_flood_of_words_fills_no_disk_and_its_end_is_kept():
    words = LastWords()
    os.write(words.fileno(), b"x" * (20 << 20) + b"the end")
    assert words.read_from().endswith("the end")
    words.shorten()
    assert words.count_bytes() == 0
    os.write(words.fileno(), b"more")
    assert words.read_from() == "more"
    words.close()
