"""Files that onnxruntime's optimizer wrote are read as the networks that they were."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.fused_operators import write_standard_operators
from artifacts.onnx_file import load_onnx

SHAPE = (1, 4, 6, 7)
CONV = {"pads": [1, 1, 1, 1], "strides": [2, 1]}


@pytest.fixture
def make_fused():
    """Returns a function that makes a network of one operator of com.microsoft on `x`."""

    def make(operator, inputs, attributes, opset=17):
        rng = np.random.default_rng(0)
        shapes = {"w": (5, 4, 3, 3), "b": (5,), "z": (1, 5, 3, 7), "m": (7, 3), "last": (7,)}
        weights = [
            numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
            for name, shape in shapes.items()
            if name in inputs
        ]
        node = helper.make_node(
            operator, inputs, ["y"], "fused", domain="com.microsoft", **attributes
        )
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            [node],
            "fused",
            [value("x", TensorProto.FLOAT, SHAPE)],
            [value("y", TensorProto.FLOAT, None)],
            weights,
        )
        imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    return make


def run(model):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)
    x = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    return session.run(["y"], {"x": x})[0]


FUSED = {
    "conv": ("FusedConv", ["x", "w"], CONV),
    "relu": ("FusedConv", ["x", "w", "b"], CONV | {"activation": "Relu"}),
    "sum": ("FusedConv", ["x", "w", "b", "z"], CONV | {"activation": "Relu"}),
    "clip": (
        "FusedConv",
        ["x", "w", "b"],
        CONV | {"activation": "Clip", "activation_params": [-0.5, 1.0]},
    ),
    "gate": (
        "FusedConv",
        ["x", "w"],
        CONV | {"activation": "HardSigmoid", "activation_params": [0.1, 0.4]},
    ),
    "leaky": (
        "FusedConv",
        ["x", "w"],
        CONV | {"activation": "LeakyRelu", "activation_params": [0.3]},
    ),
    "product": ("FusedMatMul", ["x", "m"], {"alpha": 0.25}),
    "silu": ("QuickGelu", ["x"], {"alpha": 1.0}),
    "quick gelu": ("QuickGelu", ["x"], {}),
    "gelu": ("Gelu", ["x"], {}),
    "biased gelu": ("BiasGelu", ["x", "last"], {}),
}


@pytest.mark.parametrize("case", FUSED)
def test_the_standard_operators_compute_the_same(case, make_fused):
    model = make_fused(*FUSED[case])
    wanted = run(model)
    assert write_standard_operators(model) == ["y"]
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(model, strict_mode=True))
    assert {node.domain for node in model.graph.node} == {""}
    np.testing.assert_allclose(run(model), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "opset"),
    [
        ("FusedMatMul", ["x", "x"], {"transB": 1}, 17),
        ("FusedConv", ["x", "w"], CONV | {"activation": "Softplus"}, 17),
        ("FusedConv", ["x", "w"], CONV | {"activation": "Relu"}, 12),
        ("BiasSoftmax", ["x", "last"], {"axis": 3, "is_inner_broadcast": 0}, 17),
    ],
    ids=["transposed", "activation", "old", "operator"],
)
def test_what_has_no_form_stays(operator, inputs, attributes, opset, make_fused):
    model = make_fused(operator, inputs, attributes, opset)
    before = model.SerializeToString()
    assert write_standard_operators(model) == []
    assert model.SerializeToString() == before


def test_an_optimized_file_is_read_as_the_network_it_was(tmp_path):
    rng = np.random.default_rng(0)
    shapes = {"a": (8, 4, 3, 3), "b": (6, 8, 1, 1)}
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"], "first"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "b"], ["d"], "second"),
        helper.make_node("Sigmoid", ["d"], ["s"], "gate"),
        helper.make_node("Mul", ["d", "s"], ["y"], "silu"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "plain",
        [value("x", TensorProto.FLOAT, SHAPE)],
        [value("y", TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert "FusedConv" in {n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node}
    loaded = load_onnx(tmp_path / "optimized.onnx")
    assert [node.op_type for node in loaded.graph.node] == [node.op_type for node in nodes]
    np.testing.assert_allclose(run(loaded), run(model), rtol=1e-4, atol=1e-5)
