"""A quantization that was killed goes on where it stopped; what it will need is known before."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from artifacts.errors import InputError
from compress.quantize import decision_log, layer_plan, memory_estimate
from compress.quantize.api import quantize_model
from compress.quantize.decision_log import DecisionLog
from compress.quantize.layer_weights import QuantizedWeight
from compress.quantize.memory_estimate import MemoryEstimate, estimate_memory
from compress.quantize.observers import Percentile
from compress.quantize.prepare import prepare_network
from compress.quantize.qparams import IntegerGrid, QParams
from compress.quantize.settings import QuantizeSettings


@pytest.fixture
def samples() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((1, 3, 12, 16)).astype(np.float32)} for _ in range(3)]


class Killed(Exception):
    pass


def interrupt_after(layers: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets the rounding of a layer fail after so many; returns the names of those rounded."""
    rounded: list[str] = []
    true_round = layer_plan.round_layer

    def round_layer(node, *rest, **named):
        if len(rounded) == layers:
            raise Killed
        rounded.append(node.name)
        return true_round(node, *rest, **named)

    monkeypatch.setattr(layer_plan, "round_layer", round_layer)
    return rounded


@contextmanager
def interrupted(log: DecisionLog) -> Iterator[DecisionLog]:
    """Lets a run that keeps decisions in a log be interrupted after them."""
    with suppress(Killed), log:
        yield log
        raise Killed


def test_an_interrupted_run_goes_on_and_ends_as_if_nothing_happened(
    residual_model, samples, tmp_path, monkeypatch
):
    folder = tmp_path / "log"
    whole = quantize_model(residual_model, samples)
    with monkeypatch.context() as patch:
        first = interrupt_after(2, patch)
        with pytest.raises(Killed), DecisionLog(folder) as log:
            quantize_model(residual_model, samples, log=log)
    assert folder.exists()
    with monkeypatch.context() as patch:
        second = interrupt_after(99, patch)
        resumed = quantize_model(residual_model, samples, log=DecisionLog(folder))
    assert resumed.model.SerializeToString() == whole.model.SerializeToString()
    assert len(first) == 2
    assert set(first).isdisjoint(second)
    assert len(first + second) == sum(item.rounding != "" for item in whole.layers)


def test_decisions_come_back_as_they_were(tmp_path):
    qparams = QParams(scale=0.1, zero_point=3, grid=IntegerGrid(is_signed=False))
    weight = QuantizedWeight(
        integers=np.arange(-4, 4, dtype=np.int8).reshape(2, 4),
        scales=np.array([0.5, 2.0], np.float32),
        axis=0,
        bits=4,
    )
    with interrupted(DecisionLog(tmp_path / "log")) as writing:
        writing.keep_qparams("a/b:c", qparams)
        writing.keep_weight("conv", weight, "gptq")
    for log in (writing, DecisionLog(tmp_path / "log")):
        assert log.find_qparams("a/b:c") == qparams
        assert log.find_qparams("a/b") is None
        found = log.find_weight("conv")
        assert found is not None
        assert found[1] == "gptq"
        assert (found[0].axis, found[0].block, found[0].bits) == (0, None, 4)
        np.testing.assert_array_equal(found[0].integers, weight.integers)
        np.testing.assert_array_equal(found[0].scales, weight.scales)


def test_only_runs_that_are_long_or_end_badly_write_files(tmp_path, monkeypatch):
    qparams = QParams(scale=0.1, zero_point=3, grid=IntegerGrid(is_signed=False))
    folder = tmp_path / "log"
    with DecisionLog(folder) as log:
        log.keep_qparams("x", qparams)
        assert log.find_qparams("x") == qparams
        assert log.branch("symmetric").find_qparams("x") is None
    assert not folder.exists()
    with DecisionLog(folder) as log:
        log.branch("symmetric").keep_qparams("x", qparams)
        monkeypatch.setattr(decision_log, "UNWRITTEN_SECONDS", 0.0)
        log.keep_qparams("x", qparams)
        assert DecisionLog(folder).find_qparams("x") == qparams
        assert DecisionLog(folder).branch("symmetric").find_qparams("x") == qparams


@pytest.mark.parametrize("damage", ["empty", "cut", "zeros", "one bit"])
def test_what_a_power_loss_damaged_is_decided_again(damage, tmp_path):
    qparams = QParams(scale=0.1, zero_point=3, grid=IntegerGrid(is_signed=False))
    with interrupted(DecisionLog(tmp_path / "log")) as log:
        log.keep_qparams("x", qparams)
    (path,) = tmp_path.glob("log/*")
    whole = path.read_bytes()
    place = whole.index("scale".encode("utf-32-le"))
    damaged = {
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "zeros": bytes(len(whole)),
        "one bit": whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :],
    }
    path.write_bytes(damaged[damage])
    assert log.find_qparams("x") is None
    log.keep_qparams("x", qparams)
    assert log.find_qparams("x") == qparams


def test_other_nodes_in_float_are_another_log(tmp_path):
    log = DecisionLog(tmp_path / "log")
    qparams = QParams(scale=0.1, zero_point=3, grid=IntegerGrid(is_signed=False))
    log.with_float_nodes(frozenset()).keep_qparams("x", qparams)
    assert log.find_qparams("x") == qparams
    other = log.with_float_nodes(frozenset({"b", "a"}))
    assert other.find_qparams("x") is None
    other.keep_qparams("x", qparams)
    assert log.with_float_nodes(frozenset({"a", "b"})).find_qparams("x") == qparams


def test_nothing_is_kept_without_a_folder():
    log = DecisionLog()
    log.keep_qparams("x", QParams(scale=1.0, zero_point=0, grid=IntegerGrid()))
    assert log.find_qparams("x") is None


def test_the_estimate_grows_with_samples_and_spills_beyond_the_cap(residual_model, samples):
    prepared = prepare_network(residual_model, samples, QuantizeSettings())
    few, many = (estimate_memory(prepared, count, 1 << 40) for count in (1, 100))
    assert many.memory_bytes - few.memory_bytes > 98 * 4 * 3 * 12 * 16
    assert few.disk_bytes == 0
    spilled = estimate_memory(prepared, 100, 1000)
    assert spilled.memory_bytes < many.memory_bytes
    assert spilled.disk_bytes > 0
    assert "disk" in str(spilled)


def test_a_full_disk_is_noticed_before_the_start(residual_model, samples, monkeypatch):
    usage = shutil.disk_usage(Path.cwd())
    monkeypatch.setattr(memory_estimate.shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(InputError, match="of disk"):
        quantize_model(residual_model, samples, QuantizeSettings(memory_cap_bytes=0))
    MemoryEstimate(memory_bytes=1, disk_bytes=10).require_disk()


def test_a_finished_run_is_repeated_from_its_log_where_weights_make_up_for_errors(
    residual_model, tmp_path
):
    rng = np.random.default_rng(2)
    samples = [{"x": rng.standard_normal((1, 3, 12, 16)).astype(np.float32)} for _ in range(8)]
    settings = QuantizeSettings(observer=Percentile(percent=80.0))
    first = quantize_model(residual_model, samples, settings, log=DecisionLog(tmp_path / "log"))
    assert any("inputs corrected" in item.rounding for item in first.layers)
    again = quantize_model(residual_model, samples, settings, log=DecisionLog(tmp_path / "log"))
    assert again.model.SerializeToString() == first.model.SerializeToString()
    assert again.layers == first.layers
