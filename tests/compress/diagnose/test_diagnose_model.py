import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from compress.compare import compare_models
from compress.diagnose import Diagnosis, diagnose_model
from compress.diagnose.tensor_meters import ActivationMeter, ChannelMeter
from compress.errors import CalibrationError
from compress.quantize.api import quantize_model
from compress.quantize.observers import MinMax
from compress.quantize.qparams import IntegerGrid, qparams_for_range
from compress.quantize.settings import QuantizeSettings

OUTLIER, DEAD = 5, 2
SETTINGS = QuantizeSettings(observer=MinMax(), equalization=False)


@pytest.fixture(scope="module")
def diagnosis(model, samples) -> Diagnosis:
    return diagnose_model(model, samples, SETTINGS)


def layer(diagnosis: Diagnosis, node: str):
    return next(item for item in diagnosis.layers if item.node == node)


def test_the_fault_is_found_where_it_is(diagnosis) -> None:
    spoiled = layer(diagnosis, "spoiled")
    assert spoiled.activations[0].outlier_channels == (OUTLIER,)
    assert layer(diagnosis, "last").activations[0].outlier_channels == ()
    assert spoiled.noise["a"] > 10 * layer(diagnosis, "stem").noise["a"]
    assert layer(diagnosis, "first").weight.dead_channels == (DEAD,)


def test_a_layer_costs_only_the_heads_that_need_it(diagnosis) -> None:
    assert layer(diagnosis, "spoiled").owner == "a"
    assert layer(diagnosis, "spoiled").noise["b"] == 0
    assert layer(diagnosis, "last").noise["a"] == 0
    assert layer(diagnosis, "last").noise["b"] > 0
    assert sum(item.share for item in diagnosis.layers) == pytest.approx(1)


def test_nodes_that_only_move_integers_are_no_layers(model, samples) -> None:
    model = onnx.ModelProto.FromString(model.SerializeToString())
    weight = numpy_helper.from_array(np.ones((2, 10, 1, 1), np.float32), "wj")
    model.graph.initializer.append(weight)
    model.graph.node.append(helper.make_node("Concat", ["a", "r"], ["j"], "join", axis=1))
    model.graph.node.append(helper.make_node("Conv", ["j", "wj"], ["c"], "reader"))
    model.graph.output.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [1, 2, 12, 12]))
    diagnosis = diagnose_model(model, samples, SETTINGS)
    assert "reader" in [item.node for item in diagnosis.layers]
    assert "join" not in [item.node for item in diagnosis.layers]


def test_the_recommendation_keeps_its_promise(model, samples, diagnosis) -> None:
    remedy = next(item for item in diagnosis.remedies if set(item.options[::2]) == {"--keep-float"})
    assert "spoiled" in remedy.options
    assert remedy.gain_db > 3
    assert diagnosis.recommended is not None
    assert diagnosis.recommended.gain_db >= remedy.gain_db
    again = replace(SETTINGS, keep_float=remedy.options[1::2])
    judged = samples[3::4]
    calibration = [item for index, item in enumerate(samples) if index % 4 != 3]
    result = quantize_model(model, calibration, again)
    found = compare_models(model, result.model, judged)["outputs"]
    for head, value in remedy.heads_db.items():
        assert found[head]["sqnr_db"] == pytest.approx(value, abs=0.01)


@pytest.mark.parametrize(
    ("gain_db", "worst_db", "is_recommended"),
    [
        (9.0, -0.7, True),
        (9.0, -1.0, False),
        (2.0, -0.4, True),
        (2.0, -0.6, False),
        (0.4, 0.4, False),
    ],
)
def test_a_remedy_may_cost_a_head_little_of_what_it_brings(
    diagnosis, gain_db, worst_db, is_recommended
) -> None:
    remedy = replace(diagnosis.remedies[0], gain_db=gain_db, worst_gain_db=worst_db)
    found = replace(diagnosis, remedies=(remedy,)).recommended
    assert found == (remedy if is_recommended else None)


def test_gains_are_sorted_and_add_up(diagnosis) -> None:
    gains = [item.gain_db for item in diagnosis.remedies]
    assert gains == sorted(gains, reverse=True)
    for item in diagnosis.remedies:
        differences = [item.heads_db[head] - db for head, db in diagnosis.heads_db.items()]
        assert item.gain_db == pytest.approx(np.mean(differences))
        assert item.worst_gain_db == pytest.approx(min(differences))
        assert item.worst_gain_db <= item.gain_db


def test_weights_alone_are_better_than_both(diagnosis) -> None:
    for head, both in diagnosis.heads_db.items():
        assert diagnosis.weights_only_db[head] > both
    assert diagnosis.limit.startswith("Activations limit it")


def test_what_is_in_use_is_not_proposed(model, samples) -> None:
    settings = QuantizeSettings(target="openvino", keep_float=("spoiled",))
    found = diagnose_model(model, samples, settings)
    for item in found.remedies:
        assert "--target" not in item.options
        assert "spoiled" not in item.options


def test_a_runtime_that_is_decided_is_kept(model, samples, diagnosis) -> None:
    kept = diagnose_model(model, samples, SETTINGS, keeps_target=True)
    assert [item.options for item in kept.remedies]
    assert not any("--target" in item.options for item in kept.remedies)
    assert any("--target" in item.options for item in diagnosis.remedies)


def test_few_samples_judge_what_they_calibrate(model, samples) -> None:
    few = diagnose_model(model, samples[:2], SETTINGS)
    assert not few.is_held_out
    assert few.judged_samples == few.calibration_samples == 2
    with pytest.raises(CalibrationError):
        diagnose_model(model, [], SETTINGS)


def test_the_samples_that_judge_do_not_calibrate(diagnosis) -> None:
    assert diagnosis.is_held_out
    assert (diagnosis.calibration_samples, diagnosis.judged_samples) == (6, 2)


def test_plain_values_are_json(diagnosis) -> None:
    values = json.loads(json.dumps(diagnosis.to_dict(), allow_nan=False))
    assert values["recommended"] == diagnosis.recommended.command
    assert {item["node"] for item in values["layers"]} == {"stem", "spoiled", "first", "last"}


@given(
    st.lists(st.floats(-10, 10, width=32), min_size=4, max_size=60), st.floats(0.125, 12, width=32)
)
def test_saturation_counts_what_is_clipped(values, reach) -> None:
    grid = IntegerGrid()
    qparams = qparams_for_range(-reach, reach, grid, symmetric=True)
    meter = ActivationMeter("t", qparams)
    array = np.array(values, np.float32).reshape(1, 1, 1, -1)
    meter.update(array)
    finding = meter.finding()
    beyond = (array > qparams.high + qparams.scale / 2) | (array < qparams.low - qparams.scale / 2)
    assert finding.saturated == pytest.approx(beyond.mean())
    assert 0 <= finding.clipping_share <= 1 + 1e-9
    assert (finding.saturated > 0) == (finding.clipping_share > 0)


@given(st.integers(1, 5), st.integers(0, 4), st.floats(1e-3, 0.5))
def test_the_channel_meter_finds_the_noisy_channel(channels, noisy, size) -> None:
    noisy %= channels
    rng = np.random.default_rng(0)
    expected = rng.normal(size=(1, channels, 6, 6)).astype(np.float32)
    got = expected.copy()
    got[:, noisy] += np.float32(size)
    meter = ChannelMeter(1)
    meter.update(expected, got)
    assert min(range(channels), key=meter.channel_db.__getitem__) == noisy
    assert meter.sqnr_db >= meter.channel_db[noisy] - 1e-9
    assert all(db == 200 for index, db in enumerate(meter.channel_db) if index != noisy)
