"""Attention whose weights have fewer axes than its values, in a form that OpenVINO compiles."""

import numpy as np
import openvino
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.placement.softmax_ranks import write_softmax_ranks
from compress.quantize.settings import QuantizeSettings

HEADS, TOKENS, WIDTH = 4, 20, 16


def make_attention(make_model, long_values, opset=17):
    rng = np.random.default_rng(0)
    shape = (1, HEADS, TOKENS, WIDTH) if long_values else (HEADS, TOKENS, WIDTH)
    weights = {
        name: rng.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32) for name in ("wq", "wk", "wv")
    } | {"shape": np.array(shape)}
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"], "q"),
        helper.make_node("MatMul", ["x", "wk"], ["k"], "k"),
        helper.make_node("Transpose", ["k"], ["turned"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"], "scores"),
        helper.make_node("Softmax", ["scores"], ["p"], "softmax", axis=-1),
        helper.make_node("MatMul", ["x", "wv"], ["v"], "v"),
        helper.make_node("Reshape", ["v", "shape"], ["values"], "split"),
        helper.make_node("MatMul", ["p", "values"], ["y"], "attend"),
    ]
    return make_model(nodes, weights, {"x": (HEADS, TOKENS, WIDTH)}, ["y"], opset=opset)


def compile_for_openvino(model):
    core = openvino.Core()
    read = core.read_model(model.SerializeToString())
    return core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


@pytest.mark.parametrize("opset", [11, 17])
def test_the_form_computes_the_same_and_openvino_compiles_it(make_model, rewrite, run_model, opset):
    model = make_attention(make_model, long_values=True, opset=opset)
    x = np.random.default_rng(1).standard_normal((HEADS, TOKENS, WIDTH), np.float32)
    done, graph = rewrite(model, x, write_softmax_ranks)
    assert done == ["attend"]
    got = compile_for_openvino(graph.to_model())([x])[0]
    np.testing.assert_allclose(got, run_model(model, {"x": x})["y"], atol=1e-5)
    with pytest.raises(RuntimeError, match="last dimension"):
        compile_for_openvino(model)


def test_values_with_as_many_axes_stay(make_model, rewrite):
    model = make_attention(make_model, long_values=False)
    x = np.random.default_rng(1).standard_normal((HEADS, TOKENS, WIDTH), np.float32)
    assert rewrite(model, x, write_softmax_ranks)[0] == []


def test_such_attention_is_quantized_for_openvino(make_model):
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal((HEADS, TOKENS, WIDTH), np.float32)} for _ in range(4)]
    model = make_attention(make_model, long_values=True)
    result = quantize_model(model, samples, QuantizeSettings(target="openvino"))
    assert result.outputs_db["y"] > 25
    assert compile_for_openvino(result.model)([samples[0]["x"]])[0].shape == (
        1,
        HEADS,
        TOKENS,
        WIDTH,
    )
