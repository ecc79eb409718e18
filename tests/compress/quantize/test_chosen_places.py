"""What a TopK chooses in the middle of a network, and what layers compute of it (RT-DETR)."""

import numpy as np
import onnx
import pytest
from onnx import helper

from compress.compare import compare_models
from compress.diagnose.layers import inspect_layers
from compress.head_judge import HeadJudge
from compress.quantize.api import quantize_model
from compress.quantize.prepare import prepare_network
from compress.quantize.search.sensitivity import measure_layers
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass
from framefit.target_check import measure_on_target
from tests.chosen_rows import choose_rows


@pytest.fixture
def queries(make_model):
    """Ten of many rows are chosen by scores that hardly differ, and layers go on from them."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in (("w", (8, 3, 3, 3)), ("w_first", (8, 8)), ("w_last", (8, 6)))
    }
    weights["w_score"] = (rng.standard_normal((1, 8, 1, 1)) / 500).astype(np.float32)
    choosing, shapes = choose_rows(10)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["map"], "trunk", pads=[1] * 4),
        helper.make_node("Conv", ["map", "w_score"], ["scores"], "score"),
        *choosing,
        helper.make_node("MatMul", ["queries", "w_first"], ["hidden"], "first"),
        helper.make_node("Relu", ["hidden"], ["kept"], "relu"),
        helper.make_node("MatMul", ["kept", "w_last"], ["y"], "last"),
    ]
    weights |= {name: np.array(value) for name, value in shapes.items()}
    return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
def test_layers_behind_chosen_places_are_quantized_and_compared_at_the_same_places(queries, target):
    pictures = np.random.default_rng(1).random((12, 1, 3, 12, 16), np.float32)
    samples = [{"x": item} for item in pictures]
    result = quantize_model(queries, samples[:8], QuantizeSettings(target=target))
    assert result.outputs_db["y"] > 30
    assert compare_models(queries, result.model, samples[8:])["outputs"]["y"]["sqnr_db"] > 30
    damaged = onnx.ModelProto()
    damaged.CopyFrom(result.model)
    node = next(item for item in damaged.graph.node if item.name == "relu")
    node.op_type = "Neg"
    assert compare_models(queries, damaged, samples[8:])["outputs"]["y"]["sqnr_db"] < 10


def test_a_judge_of_heads_goes_on_from_the_same_places(queries):
    pictures = np.random.default_rng(1).random((12, 1, 3, 12, 16), np.float32)
    samples = [{"x": item} for item in pictures]
    result = quantize_model(queries, samples[:8], QuantizeSettings())
    judge = HeadJudge(queries, samples[8:], {"y": ("y",)})
    assert judge.measure(queries)["y"] > 100
    assert judge.measure(result.model)["y"] > 30


def test_places_whose_number_the_graph_leaves_open_are_given_too(queries):
    free = onnx.ModelProto()
    free.CopyFrom(queries)
    known = helper.make_tensor_value_info("places", onnx.TensorProto.INT64, ["batch", None])
    kept = [item for item in free.graph.value_info if item.name != "places"]
    del free.graph.value_info[:]
    free.graph.value_info.extend([*kept, known])
    samples = [{"x": np.random.default_rng(1).random((1, 3, 12, 16), np.float32)}]
    assert HeadJudge(free, samples, {"y": ("y",)}).measure(free)["y"] > 100


def test_the_target_is_given_the_same_places(queries, exact_weights):
    pictures = np.random.default_rng(1).random((12, 1, 3, 12, 16), np.float32)
    samples = [{"x": item} for item in pictures]
    settings = QuantizeSettings(target="openvino", weights=exact_weights)
    result = quantize_model(queries, samples[:8], settings)
    assert measure_on_target(queries, result.model, samples[8:], "openvino")["y"] > 25


def test_no_layer_is_blamed_for_the_places(queries):
    pictures = np.random.default_rng(1).random((8, 1, 3, 12, 16), np.float32)
    samples, settings = [{"x": item} for item in pictures], QuantizeSettings()
    prepared = prepare_network(queries, samples, settings)
    decisions = StreamingPass(prepared, settings).run(samples)
    (matrix,) = measure_layers(prepared, decisions, [samples])
    noise = dict(zip(matrix.layers, matrix.noise[:, 0], strict=True))
    assert noise["score"] == 0
    assert all(0 < noise[layer] < 1e-3 for layer in ("trunk", "first", "last"))
    layers = inspect_layers(prepared, decisions, matrix, samples)
    assert all(layer.sqnr_db > 30 for layer in layers if layer.node != "score")
