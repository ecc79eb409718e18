"""A survey sees every sample, keeps little of it, and names what is not finite."""

import numpy as np
import pytest
from onnx import helper

from compress.errors import CalibrationError
from compress.quantize import memory_estimate, survey
from compress.quantize.api import quantize_model
from compress.quantize.channel_survey import SeenChannels
from compress.quantize.graph import Graph
from compress.quantize.memory_estimate import count_walked
from compress.quantize.placement import vector_layers
from compress.quantize.prepare import prepare_network
from compress.quantize.rounding import GPTQ
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass
from compress.quantize.survey import SurveyedTensor, observe_surveyed, survey_tensors

SHAPE = (1, 3, 16, 16)


@pytest.fixture
def many():
    rng = np.random.default_rng(3)
    return [{"x": rng.random(SHAPE, np.float32) * (1 + index)} for index in range(20)]


@pytest.fixture
def network(make_model):
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((3, 3, 1, 1)).astype(np.float32) for name in ("v", "w")}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], "first"),
        helper.make_node("Log", ["a"], ["b"], "log"),
        helper.make_node("Relu", ["b"], ["c"], "relu"),
        helper.make_node("Conv", ["c", "w"], ["y"], "second"),
    ]
    weights["v"] = np.abs(weights["v"])
    return make_model(nodes, weights, {"x": SHAPE}, ["y"])


def test_the_extremes_are_exact_and_the_values_few(network, many, run_model, monkeypatch):
    monkeypatch.setattr(survey, "VALUES_IN_ALL", 20 * 2 * 299)
    monkeypatch.setattr(survey, "FEWEST_VALUES", 1)
    found = survey_tensors(Graph(network), ["x", "y"], many)
    wanted = {
        "x": np.stack([sample["x"] for sample in many]),
        "y": np.stack([run_model(network, sample)["y"] for sample in many]),
    }
    for name, values in wanted.items():
        seen = observe_surveyed([found[name]])
        np.testing.assert_allclose([seen.low, seen.high], [values.min(), values.max()], rtol=1e-5)
        assert 20 * 100 < seen.counts.sum() <= 20 * 300


def test_tensors_that_share_a_range_are_seen_together(network, many):
    found = survey_tensors(Graph(network), ["x", "y"], many)
    both = observe_surveyed([found["x"], found["y"]])
    assert both.low == min(found["x"].low, found["y"].low)
    assert both.high == max(found["x"].high, found["y"].high)
    parts = [sum(map(len, found[name].values)) for name in ("x", "y")]
    assert both.counts.sum() == sum(parts)


@pytest.mark.parametrize(("operator", "value"), [("Log", -1.0), ("Reciprocal", 0.0)])
def test_the_first_node_that_is_not_finite_is_named(operator, value, network, many):
    network.graph.node[1].op_type = operator
    many[17] = {"x": np.full(SHAPE, value, np.float32)}
    with pytest.raises(CalibrationError, match=r"'b', the output of node 'log'.*sample 17"):
        quantize_model(network, many)


def test_ranges_come_from_samples_that_the_walk_leaves_out(network, many, monkeypatch):
    monkeypatch.setattr(memory_estimate, "WALK_BYTES", 0)
    settings = QuantizeSettings()
    prepared = prepare_network(network, many, settings)
    assert count_walked(prepared, settings, len(many)) == memory_estimate.FEWEST_WALKED
    assert count_walked(prepared, QuantizeSettings(rounding=GPTQ()), len(many)) == len(many)
    assert count_walked(prepared, settings, 3) == 3
    decisions = StreamingPass(prepared, settings).run(many)
    qparams = decisions.activations["x"]
    assert qparams.high > 0.9 * max(sample["x"].max() for sample in many)


@pytest.mark.parametrize(
    ("prefer", "count", "alters"),
    [(None, 20, False), ("speed", 20, False), ("quality", 20, True), (None, 15, True)],
)
def test_ranges_take_in_brighter_pictures_where_they_are_few_or_quality_counts(
    prefer, count, alters, network, many
):
    dark = [{"x": 0.1 * sample["x"]} for sample in many[:count]]
    dark[1]["x"][0, :, 0, 0] = 5.0
    prepared = prepare_network(network, dark, QuantizeSettings(prefer=prefer))
    seen = prepared.survey["x"]
    assert (max(values.mean() for values in seen.values) > 1.3) == alters
    assert (len(seen.values) > count) == alters


@pytest.mark.parametrize(("most_bytes", "altered"), [(None, 12), (0, 4)])
def test_of_large_pictures_few_are_altered(most_bytes, altered, network, many, monkeypatch):
    if most_bytes is not None:
        monkeypatch.setattr(survey, "MOST_BYTES", most_bytes)
    seen = prepare_network(network, many[:12], QuantizeSettings()).survey["x"]
    assert len(seen.values) == 12 + altered


@pytest.mark.parametrize("prefer", [None, "quality"])
def test_altered_pictures_that_a_network_cannot_compute_with_are_left_out(prefer, make_model):
    """The logarithm of 1 less the mean: brighter pictures have none."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((3, 3, 1, 1)).astype(np.float32) for name in ("v", "w")}
    weights["one"] = np.ones(1, np.float32)
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["mean"], "mean"),
        helper.make_node("Sub", ["one", "mean"], ["rest"], "rest"),
        helper.make_node("Log", ["rest"], ["log"], "log"),
        helper.make_node("Conv", ["x", "v"], ["a"], "first"),
        helper.make_node("Mul", ["a", "log"], ["b"], "scaled"),
        helper.make_node("Conv", ["b", "w"], ["y"], "second"),
    ]
    model = make_model(nodes, weights, {"x": SHAPE}, ["y"])
    dark = [{"x": 0.1 * rng.random(SHAPE, np.float32)} for _ in range(4)]
    for sample in dark:
        sample["x"][0, :, 0, 0] = 5.0
    settings = QuantizeSettings(target="openvino", prefer=prefer)
    result = quantize_model(model, dark, settings, clock=lambda models: [1.0 for _ in models])
    assert all(np.isfinite(db) for db in result.outputs_db.values())
    seen = prepare_network(model, dark, settings).survey["x"]
    assert len(seen.values) == len(dark)


def test_what_a_survey_lacks_is_looked_at_before_the_walk(network, many):
    prepared = prepare_network(network, many, QuantizeSettings())
    full = StreamingPass(prepared, QuantizeSettings()).run(many)
    prepared.survey.clear()
    again = StreamingPass(prepared, QuantizeSettings()).run(many)
    assert again.activations == full.activations
    assert set(prepared.survey) == set(full.activations)


@pytest.mark.parametrize(("power", "alters"), [(0.1, True), (4.0, False)])
def test_altered_pictures_that_most_tensors_explode_on_choose_no_ranges(power, alters, make_model):
    """The mean of a picture to a power: that of a brighter one is twice as large."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((3, 3, 1, 1)).astype(np.float32) for name in ("v", "w")}
    weights["power"] = np.array([power], np.float32)
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["mean"], "mean"),
        helper.make_node("Pow", ["mean", "power"], ["loud"], "louder"),
        helper.make_node("Conv", ["loud", "v"], ["a"], "first"),
        helper.make_node("Conv", ["a", "w"], ["y"], "second"),
    ]
    model = make_model(nodes, weights, {"x": SHAPE}, ["y"])
    dark = [{"x": 0.5 * rng.random(SHAPE, np.float32)} for _ in range(4)]
    for sample in dark:
        sample["x"][0, :, 0, 0] = 1.0
    settings = QuantizeSettings(target="openvino", equalization=False)
    seen = prepare_network(model, dark, settings).survey["loud"]
    assert (len(seen.values) > len(dark)) == alters


def test_a_single_tensor_that_explodes_on_altered_pictures_keeps_its_range(make_model, monkeypatch):
    """Three tensors follow the picture's brightness a little, the fourth to the fourth power."""
    monkeypatch.setattr(vector_layers, "MOST_WEIGHTS", 0)
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((3, 3, 1, 1)).astype(np.float32) for name in "stuvw"}
    weights |= {"tenth": np.array([0.1], np.float32), "fourth": np.array([4.0], np.float32)}
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["mean"], "mean"),
        helper.make_node("Pow", ["mean", "tenth"], ["calm"], "calm"),
        helper.make_node("Pow", ["mean", "fourth"], ["loud"], "louder"),
        helper.make_node("Conv", ["x", "s"], ["a"], "first"),
        helper.make_node("Conv", ["calm", "t"], ["b"], "second"),
        helper.make_node("Conv", ["b", "u"], ["c"], "third"),
        helper.make_node("Conv", ["loud", "v"], ["d"], "fourth"),
    ]
    model = make_model(nodes, weights, {"x": SHAPE}, ["a", "c", "d"])
    dark = [{"x": 0.5 * rng.random(SHAPE, np.float32)} for _ in range(4)]
    for sample in dark:
        sample["x"][0, :, 0, 0] = 1.0
    survey = prepare_network(model, dark, QuantizeSettings(target="openvino")).survey
    assert len(survey["loud"].values) == len(dark)
    assert len(survey["calm"].values) == 2 * len(dark)


def test_a_small_network_is_not_walked_with_more_samples_than_pay(network, many):
    settings = QuantizeSettings()
    prepared = prepare_network(network, many, settings)
    fitting = memory_estimate.MOST_WALKED
    assert len(many) > fitting
    assert count_walked(prepared, settings, len(many)) == fitting
    assert count_walked(prepared, settings, 10 * len(many)) == fitting


@pytest.mark.parametrize("shape", [(96, 192), (49, 96), (480, 640), (7, 5, 3, 60)])
@pytest.mark.parametrize("parts", [2, 3, 5, 6, 7])
def test_values_are_kept_of_all_rows_and_columns(shape, parts):
    """Every third value of a row of 192 channels would be one of the same 64 in each row."""
    most = int(np.prod(shape)) // parts
    for axis, length in enumerate(shape):
        places = np.indices(shape, np.float32)[axis]
        (kept,) = SurveyedTensor.of(places, most).values
        counts = np.bincount(kept.astype(int), minlength=length)
        assert most // 2 < len(kept) <= most + 1
        assert counts.min() > 0
        assert len(kept) / length < 20 or counts.max() < 1.5 * len(kept) / length


def test_channels_are_looked_at_in_all_columns():
    columns = np.indices((2, 96, 48), np.float32)[2]
    seen = SeenChannels.of(columns[None], 96 * 48 // 3)
    assert set(seen.values[0]) == set(range(48))
    assert set(seen.as_whole(96 * 48 // 3).values[0]) == set(range(48))
