"""Parts cut out of a Concat are read from where they come."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.parted_concats import part_concats
from export.fp16_check import run_model

RNG = np.random.default_rng(0)
SHAPES = {"a": (1, 2, 4), "b": (1, 3, 4), "c": (1, 1, 4)}


def make_network(cutters, outputs):
    """Returns a, b and c → Concat → what cuts it."""
    join = helper.make_node("Concat", list(SHAPES), ["joined"], "join", axis=1)
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in SHAPES.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    held = {"zero": 0, "one": 1, "two": 2, "three": 3, "five": 5, "six": 6, "last": -1}
    weights = {name: np.array([number], np.int64) for name, number in held.items()}
    weights |= {"third": np.array(3, np.int64), "sizes": np.array([2, 3, 1], np.int64)}
    graph = helper.make_graph(
        [join, *cutters],
        "parts",
        infos,
        results,
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return model, weights


def cut(start, stop, axis="one", output="part"):
    return helper.make_node("Slice", ["joined", start, stop, axis], [output], f"cut {output}")


def relu(tensor, output):
    return helper.make_node("Relu", [tensor], [output], f"relu {output}")


def apply(model, weights):
    """Returns the model with what `part_concats` wrote; None where it wrote nothing."""
    outputs = [item.name for item in model.graph.output]
    parted = part_concats(list(model.graph.node), weights, SHAPES, outputs)
    if parted is None:
        return None
    written = onnx.ModelProto()
    written.CopyFrom(model)
    del written.graph.node[:]
    written.graph.node.extend(parted.nodes)
    written.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in parted.weights.items()
    )
    return written


PARTS = {
    "a whole member": ([cut("two", "five"), relu("part", "y")], ["y"], ["Relu"]),
    "a member from behind": ([cut("last", "six"), relu("part", "y")], ["y"], ["Relu"]),
    "a part of a member": ([cut("three", "five"), relu("part", "y")], ["y"], ["Slice", "Relu"]),
    "an output": ([cut("two", "five")], ["part"], ["Identity"]),
    "of several slices, those of one member": (
        [cut("two", "five"), relu("part", "y"), cut("one", "three", output="z")],
        ["y", "z"],
        ["Concat", "Relu", "Slice"],
    ),
    "a single place": (
        [helper.make_node("Gather", ["joined", "third"], ["y"], "pick", axis=-2)],
        ["y"],
        ["Gather"],
    ),
    "what a Split parts": (
        [
            helper.make_node("Split", ["joined", "sizes"], ["p", "q", "r"], "split", axis=1),
            *(relu(name, f"{name}_y") for name in "pqr"),
        ],
        ["p_y", "q_y", "r_y"],
        ["Relu"] * 3,
    ),
    "what is cut again": (
        [cut("two", "five"), helper.make_node("Slice", ["part", "zero", "one", "one"], ["y"])],
        ["y"],
        ["Slice"],
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_read_from_its_member(name):
    cutters, outputs, kinds = PARTS[name]
    model, weights = make_network(cutters, outputs)
    written = apply(model, weights)
    assert written is not None
    assert [node.op_type for node in written.graph.node] == kinds
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(written), full_check=True)
    feeds = [{key: RNG.standard_normal(shape, np.float32) for key, shape in SHAPES.items()}]
    (wanted,), (got,) = run_model(model, feeds), run_model(written, feeds)
    assert all(np.array_equal(got[key], value) for key, value in wanted.items())


STAYING = {
    "parts of two members": ([cut("one", "three")], ["part"]),
    "along another axis": ([cut("one", "two", axis="two")], ["part"]),
    "every second place": (
        [helper.make_node("Slice", ["joined", "two", "five", "one", "two"], ["part"], "cut")],
        ["part"],
    ),
    "a Split across members": (
        [helper.make_node("Split", ["joined"], ["p", "q"], "split", axis=1, num_outputs=2)],
        ["p", "q"],
    ),
}


@pytest.mark.parametrize("name", STAYING)
def test_all_else_is_cut_where_it_was(name):
    model, weights = make_network(*STAYING[name])
    assert apply(model, weights) is None


def test_names_that_are_in_use_are_not_taken():
    cutters = [cut("three", "five"), relu("part", "part_place"), relu("part_place", "part_part")]
    model, weights = make_network(cutters, ["part_part"])
    written = apply(model, weights)
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(written), full_check=True)
    names = [node.name for node in written.graph.node]
    assert len(set(names)) == len(names)
