"""What outputs join: boxes in pixels beside scores, levels of a pyramid, or nothing."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from artifacts.output_parts import OutputPart, find_hidden, read_output_parts, with_parts


def make_network(nodes, shape):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, [1, 2, 3])],
        [value("y", TensorProto.FLOAT, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def joined(*branches):
    """Branches of one operator each, joined and transposed to one output."""
    nodes = [
        helper.make_node(op_type, ["x"], [f"t{place}"]) for place, op_type in enumerate(branches)
    ]
    names = [node.output[0] for node in nodes]
    nodes += [
        helper.make_node("Concat", names, ["c"], axis=-2),
        helper.make_node("Transpose", ["c"], ["y"], perm=[0, 2, 1]),
    ]
    return make_network(nodes, [1, 3, 2 * len(branches)])


def test_unlike_tensors_that_an_output_joins_are_parts_of_it():
    found = read_output_parts(joined("Relu", "Sigmoid"))
    assert found == (OutputPart("y", 2, 0, 2), OutputPart("y", 2, 2, 4))
    assert [part.name for part in found] == ["y[:, :, 0:2]", "y[:, :, 2:4]"]
    assert read_output_parts(joined("Relu", "Relu", "Relu")) == ()


def test_a_part_that_is_an_output_too_is_measured_already():
    model = joined("Relu", "Sigmoid")
    model.graph.output.append(onnx.ValueInfoProto(name="t0"))
    assert read_output_parts(model) == (OutputPart("y", 2, 2, 4),)


def make_levels(*kinds):
    """Levels that join what the operators make, flattened to rows and joined to one output."""
    nodes = [helper.make_node("Constant", [], ["rows"], value_ints=[1, -1, 4])]
    for level, pair in enumerate(kinds):
        names = [f"{kind}{level}" for kind in pair]
        nodes += [helper.make_node(kind, ["x"], [f"{kind}{level}"]) for kind in pair]
        nodes += [
            helper.make_node("Concat", names, [f"c{level}"], axis=1),
            helper.make_node("Transpose", [f"c{level}"], [f"t{level}"], perm=[0, 2, 1]),
            helper.make_node("Reshape", [f"t{level}", "rows"], [f"r{level}"]),
        ]
    levels = [f"r{level}" for level in range(len(kinds))]
    nodes.append(helper.make_node("Concat", levels, ["y"], axis=1))
    return make_network(nodes, [1, 3 * len(kinds), 4])


def test_levels_that_join_the_same_parts_have_these():
    model = make_levels(("Exp", "Sigmoid"), ("Exp", "Sigmoid"))
    assert read_output_parts(model) == (OutputPart("y", 2, 0, 2), OutputPart("y", 2, 2, 4))


def test_levels_that_join_other_things_have_no_parts():
    assert read_output_parts(make_levels(("Exp", "Sigmoid"), ("Relu", "Relu"))) == ()


@pytest.mark.parametrize(("shape", "axis"), [((1, 1, 3, 4), 3), ((1, 12), None)])
def test_a_reshape_keeps_an_axis_or_ends_it(shape, axis):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Sigmoid", ["x"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
        helper.make_node("Transpose", ["c"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Constant", [], ["shape"], value_ints=shape),
        helper.make_node("Reshape", ["t", "shape"], ["y"]),
    ]
    found = read_output_parts(make_network(nodes, shape))
    expected = [] if axis is None else [("y", axis, 0, 2), ("y", axis, 2, 4)]
    assert [(part.tensor, part.axis, part.start, part.stop) for part in found] == expected


def test_parts_are_taken_from_the_values():
    value = np.arange(12).reshape(1, 3, 4)
    taken = with_parts({"y": value}, [OutputPart("y", 2, 2, 4), OutputPart("z", 1, 0, 1)])
    assert set(taken) == {"y", "y[:, :, 2:4]"}
    assert np.array_equal(taken["y[:, :, 2:4]"], value[:, :, 2:])


def test_what_the_whole_hides_is_named():
    parts_db = {"y[:, 0:4]": 50.0, "y[:, 4:84]": 31.0, "z[0:1]": 60.0}
    assert find_hidden({"y": 50.0}, parts_db) == {"y[:, 4:84]": 31.0, "z[0:1]": 60.0}
