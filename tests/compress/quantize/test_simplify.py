"""Simplifications keep the network's results."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from compress.quantize.graph import Graph
from compress.quantize.simplify import simplify


def assert_same(model, run_model, feeds, absent=()):
    graph = Graph(model)
    done = simplify(graph)
    after = graph.to_model()
    expected, got = run_model(model, feeds), run_model(after, feeds)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5)
    operators = {node.op_type for node in after.graph.node}
    assert not operators & set(absent)
    return done, after


def norm_weights(channels, rng):
    return {
        "gamma": rng.uniform(-1.5, 1.5, channels).astype(np.float32),
        "beta": rng.standard_normal(channels).astype(np.float32),
        "mean": rng.standard_normal(channels).astype(np.float32),
        "var": rng.uniform(0.5, 2, channels).astype(np.float32),
    }


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_batch_norm_is_folded(op_type, groups, has_bias, make_model, run_model):
    rng = np.random.default_rng(0)
    shape = (6, 4 // groups, 3, 3) if op_type == "Conv" else (4, 6 // groups, 3, 3)
    weights = {"w": rng.standard_normal(shape).astype(np.float32), **norm_weights(6, rng)}
    if has_bias:
        weights["b"] = rng.standard_normal(6).astype(np.float32)
    nodes = [
        helper.make_node(op_type, ["x", "w", "b"] if has_bias else ["x", "w"], ["c"], group=groups),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["y"]),
    ]
    model = make_model(nodes, weights, {"x": (1, 4, 7, 8)}, ["y"])
    feeds = {"x": rng.standard_normal((1, 4, 7, 8)).astype(np.float32)}
    assert_same(model, run_model, feeds, absent=["BatchNormalization"])


NORM = ("gamma", "beta", "mean", "var")
POINTS = {
    "transposed": [helper.make_node("Transpose", ["p"], ["c"], perm=[0, 2, 1])],
    "flat": [helper.make_node("Reshape", ["p", "flat"], ["c"])],
    "both": [
        helper.make_node("Unsqueeze", ["p", "first"], ["u"]),
        helper.make_node("Transpose", ["u"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Reshape", ["t", "last"], ["c"]),
    ],
}


@pytest.mark.parametrize("bias_shape", [None, (6,), (1, 1, 6), (1,)])
@pytest.mark.parametrize("moves", POINTS)
def test_a_batch_norm_of_points_is_folded(moves, bias_shape, make_model, run_model):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 6)).astype(np.float32), **norm_weights(6, rng)}
    weights |= {
        "flat": np.asarray([-1, 6]),
        "first": np.asarray([0]),
        "last": np.asarray([1, 6, 35]),
    }
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p" if bias_shape is None else "m"])]
    if bias_shape is not None:
        weights["b"] = rng.standard_normal(bias_shape).astype(np.float32)
        nodes.append(helper.make_node("Add", ["b", "m"], ["p"]))
    nodes += [*POINTS[moves], helper.make_node("BatchNormalization", ["c", *NORM], ["y"])]
    model = make_model(nodes, weights, {"x": (5, 7, 4)}, ["y"])
    feeds = {"x": rng.standard_normal((5, 7, 4)).astype(np.float32)}
    assert_same(model, run_model, feeds, absent=["BatchNormalization"])


def test_a_batch_norm_over_points_stays(make_model, run_model):
    """Axis 1 counts the points here, which the MatMul knows nothing of."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 6)).astype(np.float32), **norm_weights(6, rng)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *NORM], ["y"]),
    ]
    model = make_model(nodes, weights, {"x": (5, 6, 4)}, ["y"])
    feeds = {"x": rng.standard_normal((5, 6, 4)).astype(np.float32)}
    _, after = assert_same(model, run_model, feeds)
    assert [node.op_type for node in after.graph.node] == ["MatMul", "BatchNormalization"]


def test_a_batch_norm_whose_conv_is_read_elsewhere_stays(make_model, run_model):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((6, 3, 1, 1)).astype(np.float32), **norm_weights(6, rng)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["y"]),
        helper.make_node("Relu", ["c"], ["z"]),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 4, 4)}, ["y", "z"])
    feeds = {"x": rng.standard_normal((1, 3, 4, 4)).astype(np.float32)}
    _, after = assert_same(model, run_model, feeds)
    assert "BatchNormalization" in {node.op_type for node in after.graph.node}


def test_affines_constants_and_identities_are_folded(make_model, run_model):
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((6, 3, 1, 1)).astype(np.float32),
        "factor": rng.standard_normal((1, 6, 1, 1)).astype(np.float32),
        "offset": rng.standard_normal((6, 1, 1)).astype(np.float32),
        "two": np.float32(2).reshape(1),
        "axis": np.asarray([0], np.int64),
    }
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Conv", ["i", "w"], ["c"]),
        helper.make_node("Mul", ["c", "factor"], ["m"]),
        helper.make_node("Add", ["offset", "m"], ["a"]),
        helper.make_node("Unsqueeze", ["two", "axis"], ["three"]),
        helper.make_node("Mul", ["a", "three"], ["y"]),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 4, 4)}, ["y"])
    feeds = {"x": rng.standard_normal((1, 3, 4, 4)).astype(np.float32)}
    _, after = assert_same(model, run_model, feeds, absent=["Identity", "Add", "Unsqueeze"])
    assert after.graph.node[0].op_type == "Conv"


def test_casts_of_float32_to_float32_leave_no_gap_between_layers(make_model, run_model):
    """Networks of mixed precision have them everywhere once half precision became float32."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((6, 3, 1, 1)).astype(np.float32),
        "k": np.full((1, 6, 1, 1), 0.5, np.float32),
    }
    to_float = {"to": TensorProto.FLOAT}
    nodes = [
        helper.make_node("Cast", ["x"], ["x32"], **to_float),
        helper.make_node("Conv", ["x32", "w"], ["c"]),
        helper.make_node("Cast", ["c"], ["c32"], **to_float),
        helper.make_node("Mul", ["c32", "k"], ["m"]),
        helper.make_node("ArgMax", ["m"], ["best"], axis=1),
        helper.make_node("Cast", ["best"], ["y"], "labels", **to_float),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 4, 4)}, ["m", "y"])
    feeds = {"x": rng.standard_normal((1, 3, 4, 4)).astype(np.float32)}
    _, after = assert_same(model, run_model, feeds, absent=["Mul"])
    assert [node.name for node in after.graph.node if node.op_type == "Cast"] == ["labels"]


def test_constants_that_are_cast_like_a_tensor_are_constants(make_model, run_model):
    """As exporters write biases of zeros that they do not optimize."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((6, 3, 1, 1)).astype(np.float32),
        "one": np.array([1]),
        "outputs": np.array([6]),
    }
    nodes = [
        helper.make_node("CastLike", ["one", "x"], ["value"]),
        helper.make_node("Expand", ["value", "outputs"], ["bias"]),
        helper.make_node("Conv", ["x", "w", "bias"], ["y"]),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 4, 4)}, ["y"])
    feeds = {"x": rng.standard_normal((1, 3, 4, 4)).astype(np.float32)}
    assert_same(model, run_model, feeds, absent=["CastLike", "Cast", "Expand"])


@pytest.mark.parametrize(("split", "last"), [([2, 3, 1], -1), (2, 2), (4, 1)])
def test_parts_are_taken_without_a_sequence(split, last, make_model, run_model):
    """As exporters write a split that they do not optimize."""
    rng = np.random.default_rng(0)
    weights = {"split": np.array(split), "zero": np.array(0), "last": np.array(last)}
    nodes = [
        helper.make_node("SplitToSequence", ["x", "split"], ["parts"], axis=1),
        helper.make_node("SequenceAt", ["parts", "zero"], ["first"]),
        helper.make_node("SequenceAt", ["parts", "last"], ["z"]),
        helper.make_node("Relu", ["first"], ["y"]),
    ]
    model = make_model(nodes, weights, {"x": (1, 6, 4, 4)}, ["y", "z"])
    feeds = {"x": rng.standard_normal((1, 6, 4, 4)).astype(np.float32)}
    assert_same(model, run_model, feeds, absent=["SplitToSequence", "SequenceAt"])


def test_a_sequence_that_is_read_at_a_computed_place_stays(make_model, run_model):
    rng = np.random.default_rng(0)
    weights = {"split": np.array([2, 4]), "zero": np.array(0)}
    nodes = [
        helper.make_node("SplitToSequence", ["x", "split"], ["parts"], axis=1),
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["place"], to=TensorProto.INT64),
        helper.make_node("Mul", ["place", "zero"], ["none"]),
        helper.make_node("SequenceAt", ["parts", "none"], ["y"]),
    ]
    model = make_model(nodes, weights, {"x": (1, 6, 4, 4)}, ["y"])
    feeds = {"x": rng.standard_normal((1, 6, 4, 4)).astype(np.float32)}
    assert_same(model, run_model, feeds, absent=["Split"])


@pytest.mark.parametrize("trans_b", [0, 1])
def test_gemm_weights_become_out_by_in(trans_b, make_model, run_model):
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((5, 3) if trans_b else (3, 5)).astype(np.float32),
        "b": rng.standard_normal((1, 5)).astype(np.float32),
    }
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], alpha=0.5, beta=2.0, transB=trans_b)
    model = make_model([node], weights, {"x": (2, 3)}, ["y"])
    feeds = {"x": rng.standard_normal((2, 3)).astype(np.float32)}
    _, after = assert_same(model, run_model, feeds)
    weight = next(t for t in after.graph.initializer if t.name == after.graph.node[0].input[1])
    assert tuple(weight.dims) == (5, 3)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (1,), (), (1, 1), (4, 1), (4, 5)])
def test_what_a_gemm_adds_is_one_value_per_output_or_an_add(shape, make_model, run_model):
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((5, 3)).astype(np.float32),
        "b": np.asarray(rng.standard_normal(shape), np.float32),
    }
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
    model = make_model([node], weights, {"x": (4, 3)}, ["y"])
    feeds = {"x": rng.standard_normal((4, 3)).astype(np.float32)}
    _, after = assert_same(model, run_model, feeds)
    gemm, *others = after.graph.node
    biases = [tuple(item.dims) for item in after.graph.initializer if item.name in gemm.input[2:]]
    assert biases == ([] if shape[:1] == (4,) else [(5,)])
    assert [item.op_type for item in others] == (["Add"] if shape[:1] == (4,) else [])


def test_shared_weights_stay_as_they_are_for_their_other_reader(make_model, run_model):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((3, 3, 1, 1)).astype(np.float32), **norm_weights(3, rng)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["n"]),
        helper.make_node("Conv", ["n", "w"], ["y"]),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 4, 4)}, ["y"])
    feeds = {"x": rng.standard_normal((1, 3, 4, 4)).astype(np.float32)}
    assert_same(model, run_model, feeds, absent=["BatchNormalization"])


def test_shapes_behind_computed_pads_are_known(make_model, run_model):
    """PyTorch's exporter of old writes F.pad with pads that onnx's inference does not follow."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "missing": np.asarray([4], np.int64),
        "given": np.asarray([0, 1, 0, 1], np.int64),
        "pairs": np.asarray([-1, 2], np.int64),
        "flat": np.asarray([-1], np.int64),
        **{name: np.asarray([at], np.int64) for name, at in (("last", -1), ("end", -99))},
        "axis": np.asarray([0], np.int64),
    }
    nodes = [
        helper.make_node("ConstantOfShape", ["missing"], ["zeros"]),
        helper.make_node("Concat", ["given", "zeros_int"], ["all"], axis=0),
        helper.make_node("Reshape", ["all", "pairs"], ["rows"]),
        helper.make_node("Slice", ["rows", "last", "end", "axis", "last"], ["turned"]),
        helper.make_node("Transpose", ["turned"], ["columns"], perm=[1, 0]),
        helper.make_node("Reshape", ["columns", "flat"], ["pads"]),
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("Conv", ["padded", "w"], ["c"], "conv"),
        helper.make_node("Shape", ["c"], ["s"]),
        helper.make_node("Expand", ["one", "s"], ["ones"]),
        helper.make_node("Mul", ["c", "ones"], ["y"]),
    ]
    nodes.insert(1, helper.make_node("Cast", ["zeros"], ["zeros_int"], to=TensorProto.INT64))
    weights["one"] = np.ones(1, np.float32)
    model = make_model(nodes, weights, {"x": (1, 3, 8, 12)}, ["y"])
    before = Graph(model)
    assert {"padded", "c"}.isdisjoint(before.shapes)
    graph = before.copy()
    simplify(graph)
    assert [node.op_type for node in graph.nodes] == ["Conv", "Mul"]
    assert (graph.shapes["padded"], graph.shapes["c"]) == ((1, 3, 9, 13), (1, 4, 7, 11))
    assert {"padded", "c"} <= graph.float32
    feeds = {"x": rng.standard_normal((1, 3, 8, 12)).astype(np.float32)}
    np.testing.assert_allclose(
        run_model(graph.to_model(), feeds)["y"], run_model(model, feeds)["y"], rtol=1e-5
    )


@pytest.mark.parametrize(
    ("operator", "is_first", "is_folded"),
    [("Sub", True, True), ("Sub", False, True), ("Div", True, True), ("Div", False, False)],
)
def test_differences_and_quotients_behind_a_layer_are_folded(
    operator, is_first, is_folded, make_model, run_model
):
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((6, 4, 3, 3)).astype(np.float32),
        "k": rng.uniform(0.5, 2, (1, 6, 1, 1)).astype(np.float32),
    }
    operands = ["c", "k"] if is_first else ["k", "c"]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node(operator, operands, ["y"]),
    ]
    model = make_model(nodes, weights, {"x": (1, 4, 7, 8)}, ["y"])
    feeds = {"x": rng.standard_normal((1, 4, 7, 8)).astype(np.float32)}
    done, _ = assert_same(model, run_model, feeds, absent=[operator] if is_folded else ())
    assert bool(done) is is_folded


def test_shapes_of_static_tensors_are_folded(make_model, run_model):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 3, 1, 1)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Expand", ["c", "s2"], ["y"]),
        helper.make_node("Concat", ["one", "tail"], ["s2"], axis=0),
        helper.make_node("Slice", ["s", "from", "to"], ["tail"]),
    ]
    nodes = [nodes[0], nodes[1], nodes[4], nodes[3], nodes[2]]
    weights |= {
        "one": np.asarray([1, 4], np.int64),
        "from": np.asarray([2], np.int64),
        "to": np.asarray([4], np.int64),
    }
    model = make_model(nodes, weights, {"x": (1, 3, 4, 4)}, ["y"])
    feeds = {"x": rng.standard_normal((1, 3, 4, 4)).astype(np.float32)}
    assert_same(model, run_model, feeds, absent=["Shape", "Slice", "Concat"])
