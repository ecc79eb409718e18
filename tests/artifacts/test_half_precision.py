"""Networks of half precision become networks of single precision with the same ends."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from artifacts.half_precision import narrow_double, widen_half
from compress.compare import compare_models
from compress.quantize.api import quantize_model

SHAPE = (1, 3, 8, 8)


def make_half_network() -> onnx.ModelProto:
    """A Conv, a branch that adds a constant, and a Cast to float16, which the input needs not."""
    rng = np.random.default_rng(0)
    weight = (0.3 * rng.standard_normal((4, 3, 3, 3))).astype(np.float16)
    one = numpy_helper.from_array(np.ones(1, np.float16), "one_value")
    branch = helper.make_graph(
        [
            helper.make_node("Constant", [], ["one"], "one", value=one),
            helper.make_node("Add", ["a", "one"], ["more"], "more"),
        ],
        "branch",
        [],
        [helper.make_tensor_value_info("more", TensorProto.FLOAT16, None)],
    )
    nodes = [
        helper.make_node("Conv", ["image", "weight"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("Cast", ["c"], ["a"], "cast", to=TensorProto.FLOAT16),
        helper.make_node("If", ["always"], ["b"], "if", then_branch=branch, else_branch=branch),
        helper.make_node("Relu", ["b"], ["y"], "relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "half",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT16, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (1, 4, 8, 8))],
        [
            numpy_helper.from_array(weight, "weight"),
            numpy_helper.from_array(np.array(True), "always"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


def run(model: onnx.ModelProto, image: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {"image": image})[0])


def test_results_stay_and_so_do_the_ends():
    model = make_half_network()
    wide = widen_half(model)
    onnx.checker.check_model(wide, full_check=True)
    image = np.random.default_rng(1).random(SHAPE).astype(np.float16)
    expected, got = run(model, image), run(wide, image)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(np.float32), expected.astype(np.float32), rtol=4e-3)
    types = {tensor.name: tensor.data_type for tensor in wide.graph.initializer}
    assert types == {"weight": TensorProto.FLOAT, "always": TensorProto.BOOL}


def test_bfloat16_keeps_its_values():
    model = make_half_network()
    values = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float32)
    rounded = helper.make_tensor(
        "weight", TensorProto.BFLOAT16, values.shape, values.reshape(-1).tolist()
    )
    expected = numpy_helper.to_array(rounded).astype(np.float32)
    model.graph.initializer[0].CopyFrom(rounded)
    for item in (*model.graph.input, *model.graph.output):
        item.type.tensor_type.elem_type = TensorProto.BFLOAT16
    wide = widen_half(model)
    np.testing.assert_array_equal(numpy_helper.to_array(wide.graph.initializer[0]), expected)
    assert wide.graph.node[0].op_type == "Cast"
    assert wide.graph.output[0].type.tensor_type.elem_type == TensorProto.BFLOAT16


def test_float_networks_are_left_alone():
    weight = numpy_helper.from_array(np.ones((1, 1), np.float32), "w")
    model = helper.make_model(helper.make_graph([], "empty", [], [], [weight]))
    assert widen_half(model) is model


@pytest.mark.parametrize("half", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
@pytest.mark.parametrize("weight", ["cast", "constant"])
def test_networks_of_mixed_precision_are_quantized_and_compared(half, weight):
    """Inputs, outputs and the Softmax are float32; weights are cast, or half-size constants."""
    rng = np.random.default_rng(0)
    values = (0.3 * rng.standard_normal((4, 3, 3, 3))).astype(np.float32)
    stored = helper.make_tensor("stored", half, values.shape, values.reshape(-1).tolist())
    made = {
        "cast": helper.make_node("Cast", ["weight"], ["w"], to=half),
        "constant": helper.make_node("Constant", [], ["w"], value=stored),
    }
    nodes = [
        made[weight],
        helper.make_node("Cast", ["image"], ["x"], to=half),
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Cast", ["c"], ["c32"], to=TensorProto.FLOAT),
        helper.make_node("Softmax", ["c32"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "mixed",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 6, 6))],
        [numpy_helper.from_array(values, "weight")] if weight == "cast" else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    samples = [{"image": rng.random(SHAPE).astype(np.float32)} for _ in range(5)]
    result = quantize_model(model, samples)
    assert [layer.node for layer in result.layers] == ["conv"]
    assert compare_models(model, result.model, samples)["outputs"]["y"]["sqnr_db"] > 30


def test_a_norm_of_half_precision_with_a_scale_of_single_precision_is_compared():
    """PyTorch exports it so under autocast, and onnxruntime does not open it."""
    nodes = [
        helper.make_node("Cast", ["image"], ["x"], to=TensorProto.FLOAT16),
        helper.make_node("LayerNormalization", ["x", "scale"], ["n"], axis=-1),
        helper.make_node("Cast", ["n"], ["y"], to=TensorProto.FLOAT),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "iy"]
    values[0].name = "image"
    scale = numpy_helper.from_array(np.ones(8, np.float32), "scale")
    graph = helper.make_graph(nodes, "norm", values[:1], values[1:], [scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    samples = [{"image": np.random.default_rng(0).random(SHAPE).astype(np.float32)}]
    with pytest.raises(Exception, match="different types"):
        ort.InferenceSession(model.SerializeToString())
    assert compare_models(model, model, samples)["outputs"]["y"]["sqnr_db"] > 100


def test_they_are_quantized():
    model = make_half_network()
    del model.graph.node[2]
    model.graph.node[2].input[0] = "a"
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    rng = np.random.default_rng(1)
    samples = [{"image": rng.random(SHAPE).astype(np.float16)} for _ in range(5)]
    result = quantize_model(model, samples)
    assert result.outputs_db["y"] > 30
    image = samples[0]["image"]
    expected, got = run(model, image), run(result.model, image)
    assert got.dtype == np.float16
    error = (got - expected).astype(np.float64)
    assert 10 * np.log10(np.sum(expected.astype(np.float64) ** 2) / np.sum(error**2)) > 30


def make_double_network() -> onnx.ModelProto:
    """The network of half precision in double, with a number that float32 does not have."""
    model = make_half_network()
    double = TensorProto.DOUBLE
    graph = model.graph
    most = numpy_helper.from_array(np.full(1, 1e300), "most")
    graph.initializer.append(most)
    graph.node.append(helper.make_node("Min", ["b", "most"], ["limited"], "limit"))
    graph.node[3].input[0] = "limited"
    nodes = [*graph.node[:3], graph.node[4], graph.node[3]]
    del graph.node[:]
    graph.node.extend(nodes)
    for item in (*graph.input, *graph.output):
        item.type.tensor_type.elem_type = double
    weight = numpy_helper.to_array(graph.initializer[0]).astype(np.float64)
    graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "weight"))
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to":
                attribute.i = double
            for inner in [attribute.g.node] if attribute.HasField("g") else []:
                one = numpy_helper.from_array(np.ones(1), "one_value")
                inner[0].attribute[0].t.CopyFrom(one)
                attribute.g.output[0].type.tensor_type.elem_type = double
    onnx.checker.check_model(model, full_check=True)
    return model


def test_a_network_in_double_is_one_in_float32_ends_included():
    model = make_double_network()
    narrow = narrow_double(model)
    onnx.checker.check_model(narrow, full_check=True)
    image = np.random.default_rng(1).random(SHAPE)
    (wanted,) = ReferenceEvaluator(model).run(None, {"image": image})
    got = run(narrow, image.astype(np.float32))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert narrow_double(narrow) is narrow
