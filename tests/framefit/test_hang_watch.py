"""Runtimes that never answer end the command: one line, and the exit code of a lacking runtime."""

import json
import os
from pathlib import Path

import pytest

from artifacts.errors import UnavailableError
from framefit import hang_watch
from framefit.hang_watch import HangWatch
from latency_budget.pulse import make_pulse

HANGS = """
import threading
from framefit import hang_watch, network_check
from framefit.network_clock import NetworkClock
from engines.backends.null import NullSession
calls, make_call, run = [], hang_watch._Call, NullSession.run
def note(*given):
    calls.append(make_call(*given))
    return calls[-1]
def hang(*_):
    calls[-1].limit_s = 0.3  # From now on: what a busy machine adds before does not count.
    threading.Event().wait()
hang_watch._Call, hang_watch._LOOK_S = note, 0.1
"""
IN_OPENING = "network_check.check_network = hang"
IN_RUNNING = """
feeds_seen = []
def run_or_hang(session, feeds):
    feeds_seen.append(feeds)
    return run(session, feeds) if len(feeds_seen) < 4 else hang()
NullSession.run = run_or_hang
"""
IN_THE_CLOCK = """
import onnx
NullSession.run = hang
NetworkClock("null")([onnx.load("net.onnx")])
"""
IN_PROFILING = """
from engines.backends.ort import OrtSession
run_really = OrtSession.run
def run_or_hang(session, feeds):
    feeds_seen.append(feeds)
    return run_really(session, feeds) if len(feeds_seen) < 4 else hang()
feeds_seen, OrtSession.run = [], run_or_hang
"""
DATA = ("--data", "../pictures", "--runtime", "null")


@pytest.mark.parametrize(
    ("code", "arguments", "said"),
    [
        (IN_OPENING, ("run", *DATA), "null has not opened net.onnx in "),
        (IN_RUNNING, ("run", *DATA), "null has not returned from running the network in "),
        (IN_RUNNING, ("bench", "--runtime", "null"), "has not returned from running net.onnx in "),
        (
            IN_RUNNING,
            ("compare", *DATA, "--reference-runtime", "onnxruntime"),
            "null has not returned from running the candidate in ",
        ),
        (
            IN_PROFILING,
            ("profile", "--runtime", "onnxruntime"),
            "onnxruntime has not profiled net.onnx in ",
        ),
        (
            IN_RUNNING,
            ("options", "--runtime", "null", "--out", "options.json"),
            "null has not returned from running a shape of the network in ",
        ),
        (IN_THE_CLOCK, ("list",), "null has not returned from running a network to time it in "),
    ],
    ids=["opening", "run", "bench", "compare", "profile", "options", "clock"],
)
def test_a_runtime_that_hangs_is_told_in_one_line(start, network, pictures, code, arguments, said):
    command, *options = arguments
    named = {"list": [], "options": [f"float={network.name}"]}
    model = named.get(command, [network.name])
    process = start("engines", command, *model, *options, code=HANGS + code)
    out, err = process.communicate(timeout=200)
    assert process.returncode == UnavailableError.exit_code
    assert out == ""
    (line,) = (line for line in err.splitlines() if not line.startswith("warning: "))
    assert line.startswith("error: ")
    assert said in line
    assert "expected a runtime that answers; " in line
    assert ("--timeout" in line) == (command != "list")


class Looks:
    """Stands for the event for which the watch waits: no time passes, and 2000 s are enough."""

    def __init__(self, act=lambda: None):
        self.act = act
        self.passed_s = 0.0

    def wait(self, seconds):
        self.passed_s += seconds
        self.act()
        return self.passed_s > 2000

    def set(self):
        pass


def look(watch, monkeypatch, act=lambda: None):
    """Returns after how many seconds the watch ended the process, None for not at all, and how."""
    ended = []

    def leave(text, code):
        ended.append((text, code))
        raise SystemExit

    monkeypatch.setattr(hang_watch, "leave", leave)
    watch._is_over = Looks(act)
    try:
        watch._look()
    except SystemExit:
        return watch._is_over.passed_s, ended[0]
    return None, None


@pytest.mark.parametrize(("is_cold", "limit_s"), [(False, 60), (True, 600)])
def test_what_may_compile_has_ten_times_as_long(is_cold, limit_s, monkeypatch):
    watch = HangWatch(60)
    with watch.during("null has not moved", is_cold=is_cold):
        took_s, (text, code) = look(watch, monkeypatch)
    assert limit_s < took_s <= limit_s + 3
    assert code == 4
    assert text.startswith(f"error: null has not moved in {took_s - 1:.0f} s; expected")


def test_time_between_calls_does_not_count(monkeypatch):
    watch = HangWatch(60)
    with watch.during("null has not moved"):
        pass
    assert look(watch, monkeypatch) == (None, None)


def test_many_inferences_have_the_time_of_one_each(monkeypatch):
    pulse, descriptor = make_pulse()
    os.close(descriptor)

    def beat():
        pulse.cell[0] += 1

    watch = HangWatch(60)
    with watch.during("null has not moved", pulse=pulse):
        assert look(watch, monkeypatch, beat) == (None, None)
        took_s, _ = look(watch, monkeypatch)
    pulse.close()
    assert took_s < 70


def test_a_new_call_has_its_own_time(monkeypatch):
    watch = HangWatch(60)
    held = []

    def call_again():
        if watch._is_over.passed_s % 50 == 0:
            held.append(watch.during("null has not moved"))
            held[-1].__enter__()

    assert look(watch, monkeypatch, call_again) == (None, None)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_timeout_is_a_time(run, network, seconds):
    result = run("engines", "bench", network, "--timeout", seconds)
    assert result.code == 2
    assert "--timeout" in result.err


def test_a_network_that_answers_is_timed_as_before(run, network):
    result = run("engines", "bench", network, "--runs", 5, "--timeout", 1e6, "--json", "b.json")
    assert result.code == 0, result.err
    assert json.loads(Path("b.json").read_text())["models"][0]["n"] == 5
