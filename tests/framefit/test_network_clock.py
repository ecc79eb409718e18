"""The clock that chooses between networks says so where it cannot be trusted."""

import logging

import numpy as np
import onnx
import pytest

from engines.session import TensorInfo
from framefit import network_clock
from framefit.network_clock import NetworkClock


class Machine:
    """A machine's time, and a session on it.

    The session takes 2 ms, and another 2 ms in all but one of `calm_every` turns.
    """

    inputs = (TensorInfo("x", (1, 3), np.dtype(np.float32)),)

    def __init__(self, calm_every):
        self.calm_every = calm_every
        self.turn = 0
        self.ns = 0

    def run_borrowed(self, feeds):
        self.turn += 1
        self.ns += 2_000_000 if self.turn % self.calm_every == 0 else 4_000_000

    def perf_counter_ns(self):
        return self.ns

    def perf_counter(self):
        return self.ns / 1e9

    def close(self):
        pass


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
