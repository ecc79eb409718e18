"""Networks are timed; a disturbed machine, and what a runtime refuses, are named."""

import logging

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from artifacts.errors import InputError
from engines import runtimes
from engines.session import TensorInfo
from framefit import network_clock
from framefit.network_clock import SETTLED, SETTLED_FORM, NetworkClock
from framefit.network_session import set_up

TWO_BURSTS = 2 * network_clock.BURST


@pytest.fixture(autouse=True)
def is_set_up(monkeypatch):
    """The runtime has opened a network before, so that all that are opened are those timed."""
    monkeypatch.setattr(network_clock, "set_up", lambda _: None)


class Machine:
    """A machine's time, and a session on it.

    The session takes `ms`, and as much again in all but one of `calm_every` turns; of the others
    three of four take a share of `spread` longer.
    """

    inputs = (TensorInfo("x", (1, 3), np.dtype(np.float32)),)

    def __init__(self, calm_every, ms=2, spread=0.0):
        self.calm_every = calm_every
        self.spread = spread
        self.took_ns = ms * 1_000_000
        self.turn = 0
        self.ns = 0
        self.is_closed = False

    def run_borrowed(self, feeds):
        self.turn += 1
        factor = 1 + self.spread * (self.turn % 4 > 0) if self.turn % self.calm_every == 0 else 2
        self.elapse(round(factor * self.took_ns))

    def elapse(self, ns):
        self.ns += ns

    def perf_counter_ns(self):
        return self.ns

    def perf_counter(self):
        return self.ns / 1e9

    def close(self):
        self.is_closed = True


def open_by_version(monkeypatch, sessions):
    """Lets sessions stand for networks; returns networks that are opened as these."""
    monkeypatch.setattr(
        "engines.runtimes.open_session",
        lambda path, *_: sessions[onnx.load(path).model_version],
    )
    return [onnx.ModelProto(model_version=version) for version in range(len(sessions))]


@pytest.mark.parametrize(("calm_every", "is_disturbed"), [(1, False), (12, True)])
def test_a_disturbed_machine_is_warned_of_once(calm_every, is_disturbed, monkeypatch, caplog):
    machine = Machine(calm_every)
    monkeypatch.setattr(network_clock, "time", machine)
    monkeypatch.setattr("engines.runtimes.open_session", lambda *_: machine)
    clock = NetworkClock("openvino")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            (latency,) = clock([onnx.ModelProto()])
    assert latency == (4 if is_disturbed else 2)
    assert len(caplog.records) == is_disturbed


@pytest.mark.parametrize(("ms", "turns"), [(2, 301), (200, 13), (400, 10), (2000, 6)])
def test_slow_networks_are_timed_less_often(ms, turns, monkeypatch):
    machine = Machine(1, ms, spread=0.02)
    monkeypatch.setattr(network_clock, "time", machine)
    monkeypatch.setattr("engines.runtimes.open_session", lambda *_: machine)
    NetworkClock("openvino")([onnx.ModelProto()])
    assert machine.turn == turns


@pytest.mark.parametrize(("spread", "turns"), [(0.0, 19), (0.009, 19), (0.011, 301)])
def test_timing_ends_once_the_lower_quartile_is_known(spread, turns, monkeypatch):
    machine = Machine(1, spread=spread)
    monkeypatch.setattr(network_clock, "time", machine)
    monkeypatch.setattr("engines.runtimes.open_session", lambda *_: machine)
    NetworkClock("openvino")([onnx.ModelProto()])
    assert machine.turn == turns


@pytest.mark.parametrize(
    ("settled", "spread", "turns"),
    [(SETTLED, 0.018, 100), (SETTLED_FORM, 0.018, 19), (SETTLED_FORM, 0.04, 49)],
)
def test_forms_need_not_be_known_as_closely_as_sets_of_layers(settled, spread, turns, monkeypatch):
    machine = Machine(1, ms=5, spread=spread)
    monkeypatch.setattr(network_clock, "time", machine)
    monkeypatch.setattr("engines.runtimes.open_session", lambda *_: machine)
    clock = NetworkClock("openvino", is_to_choose=True, settled=settled)
    clock([onnx.ModelProto()])
    assert machine.turn == turns


@pytest.fixture
def open_some(monkeypatch):
    """Lets sessions that take these times in ms stand for networks; returns both."""

    def open_some(*times_ms):
        machine = Machine(1)
        monkeypatch.setattr(network_clock, "time", machine)
        sessions = [Machine(1, ms) for ms in times_ms]
        for session in sessions:
            session.elapse = machine.elapse
        return open_by_version(monkeypatch, sessions), sessions

    return open_some


def list_open(sessions):
    return [index for index, session in enumerate(sessions) if not session.is_closed]


def test_the_fastest_network_is_not_opened_again(open_some):
    models, sessions = open_some(4, 2, 3)
    clock = NetworkClock("openvino")
    clock(models)
    assert list_open(sessions) == [1]
    sessions[1] = "opened again"
    assert clock.open(models[1]) != "opened again"
    assert clock.open(models[1]) == "opened again"


def test_the_fastest_network_is_closed_where_another_is_opened(open_some):
    models, sessions = open_some(4, 2, 3)
    clock = NetworkClock("openvino")
    clock(models)
    clock.open(models[2])
    assert list_open(sessions) == []


def test_the_fastest_network_is_timed_again_as_it_was_opened(open_some):
    models, sessions = open_some(4, 2, 3, 5)
    clock = NetworkClock("openvino")
    clock(models[:2])
    fastest, sessions[1] = sessions[1], "opened again"
    assert clock([models[2], models[1], models[3]]) == pytest.approx([3, 2, 5])
    sessions[1] = fastest
    assert list_open(sessions) == [1]


def test_a_network_that_is_refused_leaves_none_open(open_some):
    models, sessions = open_some(4, 2)
    clock = NetworkClock("openvino")
    clock(models)
    with pytest.raises(IndexError):
        clock([*models, onnx.ModelProto(model_version=2)])
    assert list_open(sessions) == []


@pytest.mark.parametrize(
    ("is_to_choose", "ms", "turns"),
    [(False, (2, 4), 301), (True, (2, 4), 19), (True, (2, 2), 247), (True, (5, 5), 100)],
)
def test_networks_that_are_far_apart_are_soon_told_apart(is_to_choose, ms, turns, monkeypatch):
    """Both vary by 2 %, one where the other does not.

    Two as fast as each other get a second in all, if not 300 turns.
    """
    machine = Machine(1)
    sessions = [Machine(1, each, spread=0.02) for each in ms]
    for session in sessions:
        session.elapse = machine.elapse
    sessions[1].turn = TWO_BURSTS
    monkeypatch.setattr(network_clock, "time", machine)
    models = open_by_version(monkeypatch, sessions)
    NetworkClock("openvino", is_to_choose=is_to_choose)(models)
    assert [session.turn for session in sessions] == [turns, turns + TWO_BURSTS]


class ColdSession(Machine):
    """A session that takes half as long again right after another one of the same machine."""

    def __init__(self, machine, ms):
        super().__init__(1, ms)
        self.machine = machine

    def elapse(self, ns):
        was_cold = self.machine.ran_last is not self
        self.machine.ran_last = self
        self.machine.elapse(ns + was_cold * ns // 2)


def test_what_another_network_leaves_in_the_caches_does_not_count(monkeypatch):
    machine = Machine(1)
    machine.ran_last = None
    sessions = [ColdSession(machine, 4), ColdSession(machine, 2)]
    monkeypatch.setattr(network_clock, "time", machine)
    models = open_by_version(monkeypatch, sessions)
    latencies = NetworkClock("openvino")(models)
    assert latencies == pytest.approx([4, 2], rel=1e-15)


def test_a_ratio_is_soon_known_where_the_speed_of_the_machine_varies(monkeypatch):
    """Each 60 ms, which are some turns, take 20 % more or less; a second in all is 121 turns."""
    speeds = np.exp(0.2 * np.random.default_rng(0).standard_normal(100))
    machine = Machine(1)
    sessions = [Machine(1, each) for each in (4, 5)]
    for session in sessions:
        session.elapse = lambda ns: machine.elapse(round(ns * speeds[machine.ns // 60_000_000]))
    monkeypatch.setattr(network_clock, "time", machine)
    models = open_by_version(monkeypatch, sessions)
    clock = NetworkClock("openvino", is_to_choose=True)
    first_ms, other_ms = clock(models)
    assert other_ms / first_ms == pytest.approx(1.25, rel=0.01)
    assert {session.turn for session in sessions} == {19}


def unreadable() -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 4]) for n in ("x", "y")]
    ends[1].type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
    node = helper.make_node("Det", ["x"], ["y"], "det")
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def test_operators_are_named_and_no_temporary_file() -> None:
    with pytest.raises(InputError, match="No conversion rule found for operations: Det-19") as seen:
        NetworkClock("openvino")([unreadable()])
    assert "the network" in str(seen.value)
    assert "lint MODEL --target openvino" in str(seen.value)
    assert "tmp" not in str(seen.value)


def test_a_runtime_is_set_up_before_threads_open_networks(monkeypatch):
    """OpenVINO's bindings hang where two threads use them for the first time."""
    machine, events = Machine(1), []

    def open_session(path, runtime, settings):
        del path, runtime
        assert settings.takes_turns
        events.append("opened")
        return machine

    monkeypatch.setattr(network_clock, "time", machine)
    monkeypatch.setattr(network_clock, "set_up", events.append)
    monkeypatch.setattr("engines.runtimes.open_session", open_session)
    NetworkClock("openvino")([onnx.ModelProto()] * 2)
    assert events == ["openvino", "opened", "opened"]


def test_a_runtime_is_set_up_once(monkeypatch):
    opened, really_open = [], runtimes.open_session

    def open_session(*given):
        opened.append(really_open(*given))
        return opened[-1]

    monkeypatch.setattr(runtimes, "open_session", open_session)
    set_up.cache_clear()
    for _ in range(2):
        set_up("onnxruntime")
    (session,) = opened
    assert session.inputs[0].shape == (1,)
