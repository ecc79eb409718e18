"""Coordinates and indices are computed in FP32, whatever else is FP16."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.fp16_places import find_place_nodes
from export.precision import apply_fp16

ROWS, COLUMNS = 8, 1536


def build(nodes, constants, inputs):
    graph = helper.make_graph(
        nodes,
        "places",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, inputs[name]) for name in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


@pytest.fixture
def warp():
    """A picture moved by a flow of a layer's, in pixels, as networks for optical flow do it."""
    rng = np.random.default_rng(0)
    columns, rows = np.meshgrid(np.arange(COLUMNS), np.arange(ROWS))
    constants = {
        "w": rng.normal(size=(2, 3, 1, 1)).astype(np.float32),
        "pixels": np.stack([columns, rows], -1)[None].astype(np.float32),
        "size": np.array([2 / (COLUMNS - 1), 2 / (ROWS - 1)], np.float32),
        "one": np.float32(1),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["flow"], "flow"),
        helper.make_node("Transpose", ["flow"], ["last"], "turn", perm=[0, 2, 3, 1]),
        helper.make_node("Add", ["pixels", "last"], ["moved"], "move"),
        helper.make_node("Mul", ["moved", "size"], ["scaled"], "scale"),
        helper.make_node("Sub", ["scaled", "one"], ["grid"], "center"),
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("GridSample", ["r", "grid"], ["s"], "sample", align_corners=1),
        helper.make_node("Mul", ["s", "one"], ["y"], "product"),
    ]
    return build(nodes, constants, {"x": (1, 3, ROWS, COLUMNS)})


def test_coordinates_of_a_wide_picture_are_computed_in_fp32(warp):
    rng = np.random.default_rng(1)
    sample = {"x": rng.random((1, 3, ROWS, COLUMNS)).astype(np.float32)}
    result = apply_fp16(warp, [sample])
    kept = {item.node for item in result.kept}
    assert kept == {"turn", "move", "scale", "center", "sample"}
    assert result.sqnr_db["y"] > 50


def test_an_index_rounded_from_a_coordinate_is_the_same_one():
    """Pillars are written to the cells of a grid in which their points lie."""
    constants = {"cells": np.float32(700), "one": np.array([1])}
    nodes = [
        helper.make_node("Mul", ["where", "cells"], ["place"], "place"),
        helper.make_node("Cast", ["place"], ["index"], "round", to=TensorProto.INT64),
        helper.make_node("Relu", ["values"], ["r"], "relu"),
        helper.make_node("ScatterElements", ["grid", "index", "r"], ["y"], "write"),
    ]
    shapes = {"where": [500], "values": [500], "grid": [700]}
    rng = np.random.default_rng(2)
    sample = {name: rng.random(shape).astype(np.float32) for name, shape in shapes.items()}
    sample["grid"][:] = 0
    result = apply_fp16(build(nodes, constants, shapes), [sample])
    assert [item.node for item in result.kept] == ["place"]
    assert result.sqnr_db["y"] > 50


@pytest.mark.parametrize(
    ("first", "found"), [("Neg", ["first", "project"]), ("Relu", [])], ids=["camera", "layers"]
)
def test_a_product_belongs_to_places_only_where_no_layer_is_before_it(first, found):
    nodes = [
        helper.make_node(first, ["camera"], ["a"], "first"),
        helper.make_node("MatMul", ["a", "points"], ["grid"], "project"),
        helper.make_node("GridSample", ["x", "grid"], ["y"], "sample"),
    ]
    assert [nodes[at].name for at in sorted(find_place_nodes(nodes))] == found
