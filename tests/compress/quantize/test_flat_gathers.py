"""Gather by a number or by a table of indices, in a form that OpenVINO computes."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from compress.quantize.placement import openvino_forms
from compress.quantize.placement.flat_gathers import write_flat_gathers

SHAPE = (1, 8, 6, 10)
TABLES = {
    "number": np.array(3),
    "table": np.array([[0, 1, 2], [3, 4, 5]]),
    "column": np.array([[2], [4]]),
}


@pytest.fixture
def gather(make_model):
    """A Conv, a border of zeros, and a Gather of its rows, columns or channels."""

    def make(indices, axis=2, opset=17):
        rng = np.random.default_rng(0)
        weights = {
            "w": rng.standard_normal((16, 8, 3, 3)).astype(np.float32)
            * np.exp(rng.standard_normal((16, 1, 1, 1))).astype(np.float32),
            "i": indices,
            "border": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        }
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4),
            helper.make_node("Pad", ["c", "border"], ["p"], "pad"),
            helper.make_node("Gather", ["p", "i"], ["g"], "gather", axis=axis),
            helper.make_node("Softplus", ["g"], ["y"], "softplus"),
        ]
        return make_model(nodes, weights, {"x": SHAPE}, ["y"], opset=opset)

    return make


@pytest.fixture
def sample():
    return np.random.default_rng(1).standard_normal(SHAPE, np.float32)


@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("table", TABLES)
def test_the_form_computes_the_same(table, axis, gather, rewrite, sample):
    done, graph = rewrite(gather(TABLES[table], axis), sample, write_flat_gathers)
    assert done == ["gather"]
    (row,) = (node.input[1] for node in graph.nodes if node.op_type == "Gather")
    assert graph.weights[row].ndim == 1


def test_computed_indices_are_put_in_a_row_too(make_model, rewrite, sample):
    weights = {"start": np.array(0), "step": np.array(1), "limit": np.array(6), "s": [2, 3]}
    weights = {name: np.asarray(value) for name, value in weights.items()}
    nodes = [
        helper.make_node("Range", ["start", "limit", "step"], ["range"], "range"),
        helper.make_node("Reshape", ["range", "s"], ["i"], "table"),
        helper.make_node("Gather", ["x", "i"], ["y"], "gather", axis=2),
    ]
    assert rewrite(make_model(nodes, weights, {"x": SHAPE}, ["y"]), sample, write_flat_gathers)[
        0
    ] == ["gather"]


@pytest.mark.parametrize("kind", ["row", "weights", "integers"])
def test_other_gathers_stay(kind, make_model, rewrite):
    x = np.random.default_rng(1).standard_normal(SHAPE, np.float32)
    table = np.array([1, 3]) if kind == "row" else np.array([[1], [3]])
    weights = {"i": table, "embedding": np.ones(SHAPE, np.float32)}
    data = {"row": "x", "weights": "embedding", "integers": "cast"}[kind]
    nodes = [
        helper.make_node("Cast", ["x"], ["cast"], "to_int", to=TensorProto.INT32),
        helper.make_node("Gather", [data, "i"], ["g"], "gather", axis=2),
        helper.make_node("Cast", ["g"], ["as_float"], "to_float", to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["as_float"], ["sum"], "sum"),
        helper.make_node("Add", ["x", "sum"], ["y"], "add"),
    ]
    model = make_model(nodes, weights, {"x": SHAPE}, ["y"])
    assert rewrite(model, x, write_flat_gathers, 1e-3)[0] == []


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
@pytest.mark.parametrize("table", TABLES)
def test_openvino_computes_what_a_quantized_file_says(
    table, target, gather, sample, quantize_and_compare
):
    result, agreement_db = quantize_and_compare(gather(TABLES[table]), sample, target)
    assert len(result.layers) == 1
    assert agreement_db > 60


@pytest.mark.parametrize("table", TABLES)
def test_openvino_gets_other_indices_wrong(
    table, gather, sample, quantize_and_compare, monkeypatch
):
    """The negative control; once it fails, OpenVINO is mended and the form can go."""
    monkeypatch.setattr(openvino_forms, "write_flat_gathers", lambda graph: [])
    model = gather(TABLES[table])
    assert quantize_and_compare(model, sample, bias_correction=False)[1] < 20
