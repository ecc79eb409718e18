"""A network gets its free batch back where two samples at once give what each gives alone."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import compress.free_batch
from compress.free_batch import find_computed_sizes, free_batch
from compress.model_runner import open_runner

SHAPE = (1, 3, 8, 8)
RNG = np.random.default_rng(0)
SAMPLES = [{"x": RNG.normal(size=SHAPE).astype(np.float32)} for _ in range(2)]


def make(nodes, outputs, **constants):
    """Returns a network that reads `x`; constants by name."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, SHAPE)],
        [value(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(item), name) for name, item in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def conv():
    weight = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
    return [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4)], {"w": weight}


def flattened():
    """Its reshape names the batch; a second output is of no sample."""
    nodes, constants = conv()
    nodes += [
        helper.make_node("Reshape", ["c", "target"], ["y"]),
        helper.make_node("Identity", ["grid"], ["centres"]),
    ]
    constants |= {"target": [1, 4, 64], "grid": np.ones((1, 2), np.float32)}
    return make(nodes, {"y": (1, 4, 64), "centres": (1, 2)}, **constants)


def flattened_as_torch_exports():
    """Its reshape would take a 0 for an axis of nothing, as torch.export writes all of them."""
    model = flattened()
    reshape = next(node for node in model.graph.node if node.op_type == "Reshape")
    reshape.attribute.append(helper.make_attribute("allowzero", 1))
    return model


def windows():
    """Cuts the picture into windows, whose number is a constant, and puts it together again."""
    nodes, constants = conv()
    nodes += [
        helper.make_node("Reshape", ["c", "cut"], ["cut_c"]),
        helper.make_node("Transpose", ["cut_c"], ["moved"], perm=[0, 2, 4, 1, 3, 5]),
        helper.make_node("Reshape", ["moved", "many"], ["tokens"]),
        helper.make_node("Softmax", ["tokens"], ["soft"], axis=1),
        helper.make_node("Reshape", ["soft", "back"], ["y"]),
    ]
    constants |= {"cut": [1, 4, 2, 4, 2, 4], "many": [4, 64], "back": [1, 4, 64]}
    return make(nodes, {"y": (1, 4, 64)}, **constants)


def tokens():
    """Puts a class token before the pixels."""
    nodes, constants = conv()
    nodes += [
        helper.make_node("Reshape", ["c", "target"], ["pixels"]),
        helper.make_node("Relu", ["class"], ["token"]),
        helper.make_node("Concat", ["token", "pixels"], ["y"], axis=2),
    ]
    constants |= {"target": [1, 4, 64], "class": RNG.normal(size=(1, 4, 1)).astype(np.float32)}
    return make(nodes, {"y": (1, 4, 65)}, **constants)


def warped():
    """Reads each picture at places that are known beforehand."""
    nodes, constants = conv()
    nodes.append(helper.make_node("GridSample", ["c", "grid"], ["y"]))
    grid = RNG.uniform(-1, 1, (1, 5, 6, 2)).astype(np.float32)
    return make(nodes, {"y": (1, 4, 5, 6)}, **constants, grid=grid)


def looked_up():
    """Reads every row of a picture by itself, at computed places whose second coordinate is 0."""
    nodes, constants = conv()
    nodes += [
        helper.make_node("Reshape", ["c", "rows"], ["each"]),
        helper.make_node("Reshape", ["x", "places"], ["across"]),
        helper.make_node("Concat", ["across", "zeros"], ["grid"], axis=3),
        helper.make_node("GridSample", ["each", "grid"], ["read"]),
        helper.make_node("GridSample", ["read", "first"], ["again"]),
        helper.make_node("Reshape", ["again", "back"], ["y"]),
    ]
    constants |= {"rows": [8, 4, 1, 8], "places": [8, 3, 8, 1], "back": [1, 4, 24]}
    constants["zeros"] = np.zeros((8, 3, 8, 1), np.float32)
    constants["first"] = RNG.uniform(-1, 1, (8, 3, 1, 2)).astype(np.float32)
    return make(nodes, {"y": (1, 4, 24)}, **constants)


def enlarged():
    """Is resized to sizes that name the batch, by no exact factor."""
    nodes, constants = conv()
    nodes += [
        helper.make_node("MaxPool", ["c"], ["pooled"], kernel_shape=[3, 3]),
        helper.make_node("Resize", ["pooled", "", "", "sizes"], ["y"], mode="linear"),
    ]
    return make(nodes, {"y": (1, 4, 13, 16)}, **constants, sizes=[1, 4, 13, 16])


def enlarged_by_name():
    """As `enlarged`, in an opset in which a Resize may name its axes."""
    model = enlarged()
    model.opset_import[0].version = 18
    return model


def enlarged_by_all_names():
    """As torch.export writes it: sizes of all axes, by name."""
    model = enlarged_by_name()
    model.graph.node[-1].attribute.append(helper.make_attribute("axes", [0, 1, 2, 3]))
    return model


def doubled(mode="linear", coordinates="align_corners"):
    """Is resized by whole factors to sizes that name the batch, as torch.export writes it."""
    nodes, constants = conv()
    options = {"mode": mode, "coordinate_transformation_mode": coordinates}
    nodes.append(helper.make_node("Resize", ["c", "", "", "sizes"], ["y"], **options))
    return make(nodes, {"y": (1, 4, 16, 12)}, **constants, sizes=[1, 4, 16, 12])


def fixed_rows():
    """Its reshape does for any batch as it is, and would not with the batch first."""
    nodes, constants = conv()
    nodes += [
        helper.make_node("Transpose", ["c"], ["moved"], perm=[1, 0, 2, 3]),
        helper.make_node("Reshape", ["moved", "rows"], ["flat"]),
        helper.make_node("ReduceSum", ["c", "axes"], ["sums"], keepdims=0),
        helper.make_node("ReduceMax", ["flat"], ["peaks"], axes=[1]),
        helper.make_node("Mul", ["peaks", "zero"], ["none"]),
        helper.make_node("Reshape", ["none", "row"], ["nothing"]),
        helper.make_node("Add", ["sums", "nothing"], ["y"]),
    ]
    constants |= {"rows": [4, -1], "row": [1, 4], "axes": [2, 3], "zero": np.float32(0)}
    return make(nodes, {"y": (1, 4)}, **constants)


def mixed():
    """Subtracts the mean over the batch, so that samples depend on each other."""
    nodes, constants = conv()
    nodes += [
        helper.make_node("ReduceMean", ["c"], ["mean"], axes=[0]),
        helper.make_node("Add", ["c", "mean"], ["y"]),
    ]
    return make(nodes, {"y": (1, 4, 8, 8)}, **constants)


@pytest.mark.parametrize(
    "build",
    [
        flattened,
        flattened_as_torch_exports,
        windows,
        tokens,
        warped,
        looked_up,
        enlarged,
        enlarged_by_name,
        enlarged_by_all_names,
        doubled,
        fixed_rows,
    ],
)
def test_any_batch_gives_what_each_sample_gives(build):
    model = build()
    freed = free_batch(model, {"x": "N"}, SAMPLES)
    onnx.checker.check_model(freed, full_check=True)
    assert freed.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert freed.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "N"
    read = {name for node in freed.graph.node for name in node.input}
    assert {item.name for item in freed.graph.initializer} <= read
    single, many = (
        onnxruntime.InferenceSession(item.SerializeToString()) for item in (model, freed)
    )
    pictures = RNG.normal(size=(3, *SHAPE[1:])).astype(np.float32)
    alone = [single.run(["y"], {"x": picture[None]})[0] for picture in pictures]
    (together,) = many.run(["y"], {"x": pictures})
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "coordinates"),
    [("linear", "align_corners"), ("linear", "half_pixel"), ("nearest", "asymmetric")],
)
def test_exact_factors_take_the_place_of_sizes_that_name_the_batch(mode, coordinates):
    """OpenVINO 2026.4 miscomputes networks of integers with sizes made of the input's batch."""
    model = doubled(mode, coordinates)
    freed = free_batch(model, {"x": "N"}, SAMPLES)
    assert "Shape" not in {node.op_type for node in freed.graph.node}
    before, after = (
        onnxruntime.InferenceSession(item.SerializeToString()).run(None, SAMPLES[0])[0]
        for item in (model, freed)
    )
    assert np.array_equal(before, after)


@pytest.mark.parametrize("build", [enlarged_by_name, enlarged_by_all_names])
def test_sizes_without_the_batch_take_the_place_of_those_that_name_it(build):
    model = build()
    freed = free_batch(model, {"x": "N"}, SAMPLES)
    assert "Shape" not in {node.op_type for node in freed.graph.node}
    assert find_computed_sizes(freed) == []
    before, after = (
        onnxruntime.InferenceSession(item.SerializeToString()).run(None, SAMPLES[0])[0]
        for item in (model, freed)
    )
    assert np.array_equal(before, after)


def test_a_batch_that_decides_about_the_other_axes_stays_among_them():
    model = enlarged_by_name()
    options = {"axes": [0, 2, 3], "keep_aspect_ratio_policy": "not_larger"}
    for name, value in options.items():
        model.graph.node[-1].attribute.append(helper.make_attribute(name, value))
    sizes = next(item for item in model.graph.initializer if item.name == "sizes")
    sizes.CopyFrom(numpy_helper.from_array(np.array([1, 13, 16]), "sizes"))
    for dim in model.graph.output[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = 6
    freed = free_batch(model, {"x": "N"}, SAMPLES)
    assert find_computed_sizes(freed) == ["y"]
    before, after = (
        onnxruntime.InferenceSession(item.SerializeToString()).run(None, SAMPLES[0])[0]
        for item in (model, freed)
    )
    assert before.shape == (1, 4, 6, 6)
    assert np.array_equal(before, after)


def test_sizes_that_are_made_of_the_batch_are_named():
    freed = free_batch(enlarged(), {"x": "N"}, SAMPLES)
    assert find_computed_sizes(freed) == ["y"]


def test_an_output_of_no_sample_keeps_its_shape():
    freed = free_batch(flattened(), {"x": "N"}, SAMPLES)
    centres = freed.graph.output[1].type.tensor_type.shape.dim
    assert not centres[0].dim_param


@pytest.mark.parametrize("samples", [SAMPLES, SAMPLES[:1]])
def test_a_network_that_mixes_samples_keeps_one(samples):
    assert free_batch(mixed(), {"x": "N"}, samples) is None


def rounded(build):
    """The same network; what it reads is rounded to steps of 1."""
    model = build()
    constants = {"one": np.float32(1), "zero": np.int8(0)}
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    for node in model.graph.node:
        node.input[:] = ["read" if name == "x" else name for name in node.input]
    pair = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "zero"], ["read"]),
    ]
    nodes = [*pair, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


@pytest.mark.parametrize(("build", "is_free"), [(flattened, True), (mixed, False)])
def test_values_on_the_edge_between_integers_say_nothing_about_the_batch(
    build, is_free, monkeypatch
):
    """Sums in another order, as batches are computed, move such values to another integer."""

    def open_inexact(model):
        run = open_runner(model)
        return lambda feed: run({"x": feed["x"] + np.float32(1e-5) * (len(feed["x"]) - 1)})

    def open_any(model, outputs=None):
        return open_inexact(model) if outputs is None else open_runner(model, outputs)

    monkeypatch.setattr(compress.free_batch, "open_runner", open_any)
    edges = [{"x": np.round(sample["x"]) + np.float32(0.5)} for sample in SAMPLES]
    freed = free_batch(rounded(build), {"x": "N"}, edges)
    assert (freed is not None) == is_free
