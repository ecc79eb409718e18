"""The quantizer as a whole, on small networks."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import InputError
from compress.compare import compare_models
from compress.errors import AlreadyQuantizedError, CalibrationError
from compress.quantize.api import quantize_model
from compress.quantize.observers import ByOutputError, MinMax
from compress.quantize.placement import PLACEMENTS, last_layers, vector_layers
from compress.quantize.settings import QuantizeSettings


def sqnr(reference, candidate, samples):
    outputs = compare_models(reference, candidate, samples)["outputs"]
    return {name: result["sqnr_db"] for name, result in outputs.items()}


@pytest.mark.parametrize("target", PLACEMENTS)
def test_the_reported_quality_is_that_of_the_file(target, residual_model, samples):
    result = quantize_model(residual_model, samples, QuantizeSettings(target=target))
    measured = sqnr(residual_model, result.model, samples)
    for name, value in result.outputs_db.items():
        assert value > 25
        assert measured[name] == pytest.approx(value, abs=0.5 if target == "onnxruntime" else 0.05)


def test_the_file_is_what_tensorrt_wants(residual_model, samples, monkeypatch):
    monkeypatch.setattr(vector_layers, "MOST_WEIGHTS", 0)
    monkeypatch.setattr(last_layers, "MOST_WORK", 0.0)
    model = quantize_model(residual_model, samples).model
    onnx.checker.check_model(model)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    layers = [
        node for node in model.graph.node if node.op_type in ("Conv", "ConvTranspose", "Gemm")
    ]
    makers = {output: node for node in model.graph.node for output in node.output}
    assert len(layers) == 5
    for layer in layers:
        for name in layer.input[:2]:
            assert makers[name].op_type == "DequantizeLinear"
        dequantize = makers[layer.input[1]]
        axis = 1 if layer.op_type == "ConvTranspose" else 0
        assert helper.get_node_attr_value(dequantize, "axis") == axis
        integers, scales, zero_points = (weights[name] for name in dequantize.input)
        assert integers.dtype == zero_points.dtype == np.int8
        assert integers.min() >= -127
        assert scales.shape == (integers.shape[axis],)
        assert not zero_points.any()
        if len(layer.input) > 2:
            assert weights[layer.input[2]].dtype == np.float32
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            assert weights[node.input[2]] == 0


def test_a_tensor_with_several_quantized_readers_has_one_pair(residual_model, samples):
    model = quantize_model(residual_model, samples).model
    quantizers = [node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert len(quantizers) == len(set(quantizers))
    assert "r0" in quantizers


def test_unsigned_activations_are_more_accurate(residual_model, samples):
    signed = quantize_model(residual_model, samples)
    unsigned = quantize_model(residual_model, samples, QuantizeSettings(target="openvino"))
    assert unsigned.outputs_db["dense"] > signed.outputs_db["dense"]


def test_bias_correction_brings_the_mean_back(residual_model, samples, run_model):
    rng = np.random.default_rng(5)
    held_out = [{"x": rng.standard_normal((1, 3, 12, 16)).astype(np.float32)} for _ in range(20)]

    def mean_error(is_corrected):
        settings = QuantizeSettings(bias_correction=is_corrected)
        model = quantize_model(residual_model, samples, settings).model
        errors = [
            run_model(model, feeds)["dense"] - run_model(residual_model, feeds)["dense"]
            for feeds in held_out
        ]
        return np.abs(np.mean(errors, axis=(0, 1, 3, 4))).mean()

    assert mean_error(True) < mean_error(False)


def test_the_same_input_gives_the_same_file_and_the_cap_does_not_matter(residual_model, samples):
    before = residual_model.SerializeToString()
    first = quantize_model(residual_model, samples).model.SerializeToString(deterministic=True)
    again = quantize_model(residual_model, samples).model.SerializeToString(deterministic=True)
    spilled = quantize_model(residual_model, samples, QuantizeSettings(memory_cap_bytes=0)).model
    assert first == again == spilled.SerializeToString(deterministic=True)
    assert residual_model.SerializeToString() == before


def test_one_sample_is_enough(residual_model, samples):
    result = quantize_model(residual_model, samples[:1])
    assert min(result.outputs_db.values()) > 20


def test_progress_ends_at_the_end(residual_model, samples):
    seen = []
    quantize_model(residual_model, samples, progress=lambda *item: seen.append(item))
    for what in ("survey", "calibrate"):
        steps = [(done, total) for name, done, total in seen if name == what]
        assert steps[-1][0] == steps[-1][1] > 0
        assert steps == sorted(steps)


def test_a_quantized_network_is_refused(residual_model, samples):
    model = quantize_model(residual_model, samples).model
    with pytest.raises(AlreadyQuantizedError, match="quantized already"):
        quantize_model(model, samples)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_no_samples_are_refused(residual_model, weights):
    with pytest.raises(CalibrationError, match="no calibration samples"):
        quantize_model(residual_model, [], QuantizeSettings(weights=weights))


def test_an_unknown_target_or_node_is_refused(residual_model, samples):
    with pytest.raises(InputError, match="openvino"):
        QuantizeSettings(target="tensorart")
    with pytest.raises(InputError, match="'ghost'"):
        quantize_model(residual_model, samples, QuantizeSettings(keep_float=("ghost",)))


def test_a_misspelt_node_is_answered_with_those_like_it(residual_model, samples):
    with pytest.raises(InputError, match=r"'pointwize'.*such as pointwise.*--verbose"):
        quantize_model(residual_model, samples, QuantizeSettings(keep_float=("pointwize",)))


def test_infinite_activations_name_the_node(residual_model, samples):
    damaged = [*samples, {"x": np.full((1, 3, 12, 16), np.float32(3e38))}]
    with pytest.raises(CalibrationError, match=r"node '\w+'.*sample 6"):
        quantize_model(residual_model, damaged)


def test_nothing_to_quantize_is_said(make_model):
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {}, {"x": (1, 3)}, ["y"])
    with pytest.raises(InputError, match="nothing to quantize"):
        quantize_model(model, [{"x": np.ones((1, 3), np.float32)}])


def conv_weights(seed=0, channels=4):
    shape = (channels, channels, 3, 3)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 0.3


def check_quality(model, seed=0, least_db=25.0, observer=None):
    rng = np.random.default_rng(seed)
    shape = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
    data = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]
    settings = QuantizeSettings(observer=observer) if observer else QuantizeSettings()
    result = quantize_model(model, data, settings)
    assert min(sqnr(model, result.model, data).values()) > least_db
    return result


def test_weights_that_two_layers_share(make_model):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"], "second", pads=[1] * 4),
    ]
    result = check_quality(make_model(nodes, {"w": conv_weights()}, {"x": (1, 4, 6, 6)}, ["y"]))
    assert len(result.layers) == 2


def test_a_tensor_that_is_an_output_and_an_input(make_model):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Conv", ["a", "w"], ["y"], "second", pads=[1] * 4),
    ]
    model = make_model(nodes, {"w": conv_weights()}, {"x": (1, 4, 6, 6)}, ["a", "y"])
    check_quality(model)


def test_dead_channels_and_constant_activations(make_model):
    dead = conv_weights()
    dead[1] = 0.0
    nodes = [
        helper.make_node("Conv", ["x", "dead", "bias"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Mul", ["r", "zero"], ["gone"]),
        helper.make_node("Conv", ["gone", "w", "bias"], ["y"], "second", pads=[1] * 4),
        helper.make_node("Conv", ["r", "w"], ["z"], "third", pads=[1] * 4),
    ]
    weights = {
        "dead": dead,
        "w": conv_weights(1),
        "bias": np.asarray([0.1, -0.2, 0.3, 0.0], np.float32),
        "zero": np.float32(0).reshape(()),
    }
    check_quality(make_model(nodes, weights, {"x": (1, 4, 6, 6)}, ["y", "z"]))


def test_a_matmul_and_the_add_after_it(make_model):
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((8, 5)).astype(np.float32),
        "b": rng.standard_normal(5).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
        helper.make_node("Add", ["a", "b"], ["y"], "offset"),
    ]
    result = check_quality(make_model(nodes, weights, {"x": (1, 7, 8)}, ["y"]))
    dequantize = next(n for n in result.model.graph.node if n.input[0].startswith("product"))
    assert helper.get_node_attr_value(dequantize, "axis") == 1


def test_control_flow_runs_in_float(make_model):
    def branch(name, op_type):
        output = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)
        return helper.make_graph(
            [helper.make_node(op_type, ["a"], [f"{name}_out"], name)], name, [], [output]
        )

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["condition"]),
        helper.make_node(
            "If",
            ["condition"],
            ["b"],
            "choose",
            then_branch=branch("yes", "Relu"),
            else_branch=branch("no", "Neg"),
        ),
        helper.make_node("Conv", ["b", "w"], ["y"], "second", pads=[1] * 4),
    ]
    weights = {"w": conv_weights(), "zero": np.float32(0).reshape(())}
    result = check_quality(make_model(nodes, weights, {"x": (1, 4, 6, 6)}, ["y"]))
    assert len(result.layers) == 2


@pytest.mark.parametrize("target", PLACEMENTS)
@pytest.mark.parametrize("pattern", ["shuffle", "neck", "split", "head", "uneven", "joined_apart"])
def test_auto_asks_the_layer_that_reads_the_tensor(pattern, target, make_pattern, samples):
    settings = QuantizeSettings(target=target, observer=ByOutputError())
    result = quantize_model(make_pattern(pattern), samples[:2], settings)
    assert min(result.outputs_db.values()) > 20


def test_the_chosen_observer_is_used(residual_model, samples):
    def scales(observer):
        model = quantize_model(residual_model, samples, QuantizeSettings(observer=observer)).model
        return {
            t.name: float(numpy_helper.to_array(t))
            for t in model.graph.initializer
            if t.name == "x_scale"
        }

    largest = max(np.abs(sample["x"]).max() for sample in samples)
    assert scales(MinMax())["x_scale"] == pytest.approx(largest / 127, rel=1e-5)


@pytest.mark.parametrize("is_read_in_float", [False, True])
def test_a_max_pool_works_on_integers_where_nobody_sees_the_difference(
    is_read_in_float, make_model, run_model
):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "w"], ["y"], "second", pads=[1] * 4),
    ]
    if is_read_in_float:
        nodes.append(helper.make_node("Sigmoid", ["p"], ["z"], "reader"))
    outputs = ["y", "z"] if is_read_in_float else ["y"]
    model = make_model(nodes, {"w": conv_weights()}, {"x": (1, 4, 8, 8)}, outputs)
    result = check_quality(model)
    pool = next(node for node in result.model.graph.node if node.op_type == "MaxPool")
    maker = next(node for node in result.model.graph.node if pool.input[0] in node.output)
    assert maker.op_type == ("Relu" if is_read_in_float else "DequantizeLinear")
    feeds = {"x": np.random.default_rng(9).standard_normal((1, 4, 8, 8)).astype(np.float32)}
    plain = onnx.ModelProto()
    plain.CopyFrom(result.model)
    next(node for node in plain.graph.node if node.op_type == "MaxPool").input[0] = "r"
    np.testing.assert_array_equal(run_model(plain, feeds)["y"], run_model(result.model, feeds)["y"])
