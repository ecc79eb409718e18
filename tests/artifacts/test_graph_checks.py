"""What graphs may say, and what would end the process that runs them."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from export.lint.report import lint_file
from export.to_trt import build_plans

value = helper.make_tensor_value_info
SHAPE = (1, 3, 4, 4)


def save(path, nodes, output, weights=()):
    graph = helper.make_graph(
        nodes, "graph", [value("x", TensorProto.FLOAT, SHAPE)], [output], list(weights)
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, path)
    return path


def test_an_output_whose_branches_differ_needs_no_shape(tmp_path):
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(operator, ["x"], [name])],
            name,
            [],
            [value(name, TensorProto.FLOAT, None)],
        )
        for name, operator in (("then", "Identity"), ("else", "Flatten"))
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["is_bright"]),
        helper.make_node("If", ["is_bright"], ["y"], "choice", **branches),
    ]
    output = value("y", TensorProto.FLOAT, None)
    path = save(
        tmp_path / "a.onnx", nodes, output, [numpy_helper.from_array(np.float32(0), "zero")]
    )
    assert load_onnx(path).graph.node[2].op_type == "If"
    found = lint_file(path, target="tensorrt-11").findings
    assert "control-flow" in {item.rule for item in found}
    with pytest.raises(InputError, match="number of axes of output 'y'"):
        build_plans(path)


RANDOM = {
    "RandomNormal": {"scale": 0.0, "shape": SHAPE},
    "RandomNormalLike": {"scale": -1.0},
    "RandomUniform": {"low": 2.0, "high": 1.0, "shape": SHAPE},
    "RandomUniformLike": {"low": 2.0},
}


@pytest.mark.parametrize("operator", RANDOM)
def test_random_numbers_that_end_the_process_are_refused(operator, tmp_path):
    inputs = ["x"] if operator.endswith("Like") else []
    nodes = [
        helper.make_node(operator, inputs, ["noise"], "draw", **RANDOM[operator]),
        helper.make_node("Add", ["x", "noise"], ["y"]),
    ]
    path = save(tmp_path / "a.onnx", nodes, value("y", TensorProto.FLOAT, SHAPE))
    with pytest.raises(InputError, match=r"node 'draw' of .* draws random numbers"):
        load_onnx(path)


def test_other_random_numbers_are_taken(tmp_path):
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], "draw", mean=-2.0),
        helper.make_node("RandomUniformLike", ["noise"], ["more"], "more", low=-2.0),
        helper.make_node("Add", ["x", "more"], ["y"]),
    ]
    load_onnx(save(tmp_path / "a.onnx", nodes, value("y", TensorProto.FLOAT, SHAPE)))
