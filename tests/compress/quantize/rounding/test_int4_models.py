"""Whole networks with INT4 weights: every layer type, hard data, and the runtimes."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from artifacts.errors import InputError
from artifacts.int4_weights import widen_int4
from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.rounding import ROUNDINGS, Nearest
from compress.quantize.settings import QuantizeSettings
from engines.runtimes import open_session

ALL_INT4 = QuantizeSettings(weights="int4", int4_share=1, rounding=Nearest())


@pytest.fixture
def wide_model(make_model):
    """Correlated inputs into each kind of layer, with input axes that blocks of 64 divide."""
    rng = np.random.default_rng(0)
    shapes = {
        "w0": (64, 3, 3, 3),
        "w1": (32, 64, 3, 3),
        "w2": (64, 16, 2, 2),
        "w3": (8, 64, 1, 1),
        "w4": (128, 10),
    }
    weights = {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in shapes.items()
    }
    weights["b4"] = rng.standard_normal(10).astype(np.float32)
    weights["shape"] = np.asarray([1, 1, 128], np.int64)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["b"], "second", pads=[1] * 4),
        helper.make_node("ConvTranspose", ["r", "w2"], ["up"], "up", strides=[2, 2]),
        helper.make_node("Conv", ["r", "w3"], ["c"], "third", strides=[2, 2]),
        helper.make_node("Reshape", ["c", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w4"], ["m"], "product"),
        helper.make_node("Add", ["m", "b4"], ["classes"]),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["b", "up", "classes"], opset=21)


def pictures(count, seed=0):
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((count, 3, 4, 4)).repeat(2, 2).repeat(2, 3)
    noise = 0.3 * rng.standard_normal((count, 3, 8, 8))
    return [{"x": item[None].astype(np.float32)} for item in base + noise]


def noise_share(model, settings, calibration, judged):
    result = quantize_model(model, calibration, settings)
    outputs = compare_models(model, result.model, judged)["outputs"]
    return np.mean([10 ** (-item["sqnr_db"] / 10) for item in outputs.values()]), result


@pytest.mark.parametrize("group", [None, pytest.param(64, marks=pytest.mark.slow)])
def test_gptq_recovers_what_nearest_loses_on_pictures_it_never_saw(wide_model, group):
    calibration, judged = pictures(8), pictures(6, seed=1)
    share = 0.5 if group is None else 0.6
    lost, results = {}, {}
    for name in ("nearest", "gptq", "auto"):
        settings = QuantizeSettings(
            weights="int4",
            int4_share=1,
            weight_group=group,
            rounding=ROUNDINGS[name](),
            input_correction=False,
        )
        lost[name], results[name] = noise_share(wide_model, settings, calibration, judged)
    assert lost["gptq"] < share * lost["nearest"]
    assert lost["auto"] < share * lost["nearest"]
    assert {item.rounding.split(",")[0] for item in results["gptq"].layers} == {"gptq"}


@pytest.mark.parametrize("group", [None, 64])
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_the_runtimes_compute_what_the_file_says(wide_model, group, runtime, tmp_path):
    settings = replace(ALL_INT4, weight_group=group)
    result = quantize_model(wide_model, pictures(4), settings)
    onnx.checker.check_model(result.model)
    path = tmp_path / "model.onnx"
    onnx.save(result.model, path)
    plain = tmp_path / "plain.onnx"
    onnx.save(_with_float_weights(result.model), plain)
    with open_session(path, runtime) as session, open_session(plain, runtime) as reference:
        feeds = pictures(1, seed=2)[0]
        got, wanted = session.run(feeds), reference.run(feeds)
    for name, value in wanted.items():
        assert np.square(got[name] - value).sum() < 1e-4 * np.square(value).sum(), name


def _with_float_weights(model):
    """Returns the model with the INT4 weights' values in float, activations quantized as before."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    arrays = {item.name: item for item in bare.graph.initializer}
    for node in list(bare.graph.node):
        if node.op_type == "DequantizeLinear" and node.input[0] in arrays:
            integers, scales = (
                onnx.numpy_helper.to_array(arrays[name]).astype(np.float32)
                for name in node.input[:2]
            )
            axis = helper.get_node_attr_value(node, "axis")
            if scales.ndim == integers.ndim:
                steps = scales.repeat(integers.shape[axis] // scales.shape[axis], axis)
            else:
                steps = scales.reshape([-1 if i == axis else 1 for i in range(integers.ndim)])
            value = onnx.numpy_helper.from_array(integers * steps, node.output[0])
            bare.graph.initializer.append(value)
            bare.graph.node.remove(node)
    return bare


def test_weights_are_stored_in_four_bits(wide_model):
    stored = quantize_model(wide_model, pictures(2), ALL_INT4).model
    kinds = [item for item in stored.graph.initializer if item.data_type == TensorProto.INT4]
    weights = {item.name: item for item in kinds if item.name.endswith("_quantized")}
    assert len(weights) == 5
    for item in weights.values():
        assert len(item.raw_data) == -(-np.prod(item.dims) // 2)


def test_wide_weights_change_no_output(wide_model, run_model):
    narrow = quantize_model(wide_model, pictures(2), ALL_INT4).model
    wide = widen_int4(narrow)
    onnx.checker.check_model(wide)
    assert not any(item.data_type == TensorProto.INT4 for item in wide.graph.initializer)
    got, wanted = run_model(wide, pictures(1)[0]), run_model(narrow, pictures(1)[0])
    for name, value in wanted.items():
        np.testing.assert_array_equal(got[name], value)


def test_the_opset_is_raised_to_the_one_that_knows_int4(make_model, run_model):
    weight = np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "only"),
        helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3]),
    ]
    model = make_model(nodes, {"w": weight}, {"x": (1, 3, 8, 8)}, ["y"], opset=17)
    result = quantize_model(model, pictures(2), ALL_INT4).model
    assert next(item.version for item in result.opset_import if not item.domain) == 21
    onnx.checker.check_model(result)
    assert run_model(result, pictures(1)[0])["y"].shape == (1, 4, 1, 1)


def test_a_group_that_does_not_divide_a_layer_leaves_it_per_channel(wide_model):
    settings = replace(ALL_INT4, weight_group=128)
    model = quantize_model(wide_model, pictures(2), settings).model
    blocked = {
        node.input[0].removesuffix("_weight_quantized")
        for node in model.graph.node
        if any(item.name == "block_size" for item in node.attribute)
    }
    assert blocked == set()
    settings = replace(ALL_INT4, weight_group=64)
    model = quantize_model(wide_model, pictures(2), settings).model
    assert sum("block_size" in str(node) for node in model.graph.node) == 3


@pytest.mark.parametrize("name", ["gptq", "adaround", "auto"])
@pytest.mark.parametrize("count", [1, 2])
def test_hard_data_and_few_pictures_are_survived(name, count, make_model):
    """Dead inputs, dead outputs, a constant input, a depthwise layer, fewer columns than inputs."""
    rng = np.random.default_rng(0)
    weights = {
        "w0": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "w1": rng.standard_normal((8, 1, 3, 3)).astype(np.float32),
        "w2": rng.standard_normal((6, 8, 3, 3)).astype(np.float32),
        "w3": rng.standard_normal((6, 2, 2, 2)).astype(np.float32),
        "zero": np.zeros((), np.float32),
        "one": np.ones((1, 8, 1, 1), np.float32),
        "b0": np.asarray([-99.0, *[0.1] * 7], np.float32),
    }
    weights["w0"][3] = 0
    weights["w2"][1] = 0
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["d"], "depthwise", group=8, pads=[1] * 4),
        helper.make_node("Conv", ["d", "w2"], ["y"], "second", strides=[3, 3]),
        helper.make_node("ConvTranspose", ["y", "w3"], ["u"], "up", group=2, strides=[2, 2]),
        helper.make_node("Mul", ["r", "zero"], ["gone"]),
        helper.make_node("Conv", ["gone", "w2", ""], ["z"], "blind", pads=[1] * 4),
        helper.make_node("Add", ["gone", "one"], ["constant"]),
        helper.make_node("Conv", ["constant", "w2"], ["k"], "constant"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["u", "z", "k"], opset=21)
    settings = replace(ALL_INT4, rounding=ROUNDINGS[name]())
    result = quantize_model(model, pictures(count), settings)
    assert np.isfinite(list(result.outputs_db.values())).all()
    assert result.outputs_db["u"] > 5
    again = quantize_model(model, pictures(count), settings).model
    assert again.SerializeToString(deterministic=True) == result.model.SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize(
    "values",
    [
        {"weights": "int5"},
        {"weight_group": 64},
        {"weights": "int4", "weight_group": 1},
        {"weights": "int4", "int4_share": 1.5},
        {"int8_weights": ("layer",)},
    ],
)
def test_settings_that_make_no_sense_are_refused(values):
    with pytest.raises(InputError):
        QuantizeSettings(**values)


@pytest.mark.parametrize(
    ("weights", "count", "used"), [("int4", 6, 12), ("int4", 16, 16), ("int8", 6, 6)]
)
def test_four_bits_that_few_pictures_decide_see_quarters_of_them_too(
    wide_model, weights, count, used
):
    surveyed = []

    def progress(what, done, total):
        surveyed.extend([total] if what == "survey" else [])

    settings = QuantizeSettings(weights=weights, int4_share=1 if weights == "int4" else None)
    quantize_model(wide_model, pictures(count), settings, progress)
    assert set(surveyed) == {used}
