"""onnxruntime opens Q/DQ networks with linear layers of any opset, optimizations included."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from export.lint import lint_model

WIDTH = 16


@pytest.fixture
def make_linear(make_model):
    """Returns a function: two linear layers on (1, ..., 16), which share their bias."""

    def make(shape, opset, *, is_first=False):
        rng = np.random.default_rng(0)
        weights = {f"w{i}": rng.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32) for i in (0, 1)}
        weights["bias"] = rng.normal(0, 1, WIDTH).astype(np.float32)
        nodes = []
        for i, (source, result) in enumerate((("x", "h"), ("h", "y"))):
            nodes.append(helper.make_node("MatMul", [source, f"w{i}"], [f"p{i}"], f"product{i}"))
            terms = ["bias", f"p{i}"] if is_first else [f"p{i}", "bias"]
            nodes.append(helper.make_node("Add", terms, [result], f"sum{i}"))
        samples = [{"x": rng.normal(0, 1, shape).astype(np.float32)} for _ in range(4)]
        return make_model(nodes, weights, {"x": shape}, ["y"], opset=opset), samples

    return make


def open_plainly(model):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("shape", [(4, WIDTH), (1, 8, WIDTH), (1, 2, 8, WIDTH)])
@pytest.mark.parametrize(
    "wanted", [{}, {"weights": "int4"}, {"activations": "int16"}, {"target": "openvino"}]
)
def test_onnxruntime_opens_linear_layers_and_computes_what_they_say(
    make_linear, run_model, exact_weights, shape, wanted, is_first
):
    model, samples = make_linear(shape, 21, is_first=is_first)
    result = quantize_model(
        model, samples, QuantizeSettings(**{"weights": exact_weights, **wanted})
    ).model
    said = run_model(result, samples[0])["y"]
    got = open_plainly(result).run(["y"], samples[0])[0]
    assert np.abs(got - said).max() < 0.05 * np.abs(said).max()


def test_onnxruntime_still_refuses_biases_of_one_axis(make_linear):
    """The form is needed: with the bias as the user wrote it, the same network does not open."""
    model, samples = make_linear((1, 8, WIDTH), 21)
    result = quantize_model(model, samples, QuantizeSettings()).model
    for tensor in result.graph.initializer:
        if tensor.name.startswith("bias"):
            flat = numpy_helper.from_array(numpy_helper.to_array(tensor).reshape(-1), tensor.name)
            tensor.CopyFrom(flat)
    with pytest.raises(Exception, match="UINT8"):
        open_plainly(result)
    fixes = [item.fix for item in lint_model(result, target="onnxruntime").findings]
    assert any("as many axes as the product" in fix for fix in fixes)


@pytest.mark.parametrize(("shape", "opset"), [((1, 8, WIDTH), 20), ((4, WIDTH), 21)])
def test_biases_stay_as_they_are_where_they_do_no_harm(make_linear, shape, opset):
    model, samples = make_linear(shape, opset)
    result = quantize_model(model, samples, QuantizeSettings()).model
    biases = [item for item in result.graph.initializer if item.name.startswith("bias")]
    assert biases
    assert all(len(item.dims) == 1 for item in biases)
