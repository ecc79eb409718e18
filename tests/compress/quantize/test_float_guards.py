"""A layer in float between integers computes in float on onnxruntime as users open it."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

from artifacts.openvino_guard import remove_guards
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings

SHAPE = (1, 3, 16, 16)


@pytest.fixture
def make_chain(make_model):
    """Returns a function that makes five Convs; the third has channels of unlike weights."""

    def make(activation):
        rng = np.random.default_rng(0)
        weights = {
            name: (rng.normal(size=(count, inputs, 3, 3)) / 9).astype(np.float32)
            for name, count, inputs in zip(
                "abcde", (32, 32, 32, 32, 8), (3, 32, 32, 32, 32), strict=True
            )
        }
        weights["c"] *= np.logspace(0, -3, 32, dtype=np.float32)[:, None, None, None]
        weights["d"] *= np.logspace(0, 3, 32, dtype=np.float32)[None, :, None, None]
        nodes, tensor = [], "x"
        for name in "abcde":
            nodes.append(helper.make_node("Conv", [tensor, name], [f"{name}_y"], name))
            tensor = f"{name}_y"
            if activation == "Relu" and name != "e":
                nodes.append(helper.make_node("Relu", [tensor], [f"{name}_r"], f"{name}_relu"))
                tensor = f"{name}_r"
        nodes[-1].output[0] = "y"
        return make_model(nodes, weights, {"x": SHAPE}, ["y"])

    return make


def measure_sqnr(wanted, got):
    return 10 * np.log10(np.square(wanted).sum() / np.square(wanted - got).sum())


@pytest.mark.parametrize("activation", ["", "Relu"])
def test_onnxruntime_computes_what_the_file_says(activation, make_chain, run_model, exact_weights):
    model = make_chain(activation)
    rng = np.random.default_rng(1)
    samples = [{"x": rng.normal(size=SHAPE).astype(np.float32)} for _ in range(4)]
    settings = QuantizeSettings(
        target="onnxruntime", weights=exact_weights, keep_float=("c",), integer_borders=True
    )
    quantized = quantize_model(model, samples, settings).model
    said = run_model(quantized, samples[0])["y"]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(quantized.SerializeToString(), options)
    (computed,) = session.run(["y"], samples[0])
    assert measure_sqnr(said, computed) > 60
    bare = remove_guards(quantized)
    assert {node.op_type for node in bare.graph.node} <= {
        "Conv",
        "Relu",
        "QuantizeLinear",
        "DequantizeLinear",
    }
    np.testing.assert_array_equal(run_model(bare, samples[0])["y"], said)


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
def test_other_targets_need_no_guard(target, make_chain):
    samples = [{"x": np.ones(SHAPE, np.float32)}]
    settings = QuantizeSettings(target=target, keep_float=("c",))
    quantized = quantize_model(make_chain("Relu"), samples, settings).model
    assert "LeakyRelu" not in {node.op_type for node in quantized.graph.node}
