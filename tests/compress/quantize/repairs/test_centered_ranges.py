"""Activations that are seldom negative use all of int8, at no node that a kernel would notice."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.prepare import prepare_network
from compress.quantize.settings import QuantizeSettings

CHANNELS = 16
PICTURE = (1, CHANNELS, 12, 16)
ROWS = (1, 48, CHANNELS)


class Drawing:
    """Draws a network of Convs, or of MatMuls with an Add, node by node."""

    def __init__(self, is_product):
        self.is_product, self.nodes, self.weights = is_product, [], {}
        self.rng = np.random.default_rng(0)

    def op(self, kind, *inputs, **attributes):
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def constant(self, value):
        name = f"constant{len(self.weights)}"
        self.weights[name] = np.asarray(value, np.float32)
        return name

    def layer(self, source, kernel=1, pads=0):
        shape = (CHANNELS, CHANNELS) if self.is_product else (CHANNELS, CHANNELS, kernel, kernel)
        matrix = self.constant(self.rng.normal(0, 1 / np.sqrt(CHANNELS) / kernel, shape))
        bias = self.constant(self.rng.normal(0, 0.3, CHANNELS))
        if self.is_product:
            return self.op("Add", self.op("MatMul", source, matrix), bias)
        return self.op("Conv", source, matrix, bias, pads=[pads] * 4)

    def silu(self, source):
        return self.op("Mul", source, self.op("Sigmoid", source))


def rectified(d):
    return d.layer(d.op("Relu", d.layer("x")))


def clipped_at_six(d):
    bounds = d.constant(0), d.constant(6)
    return d.layer(d.op("Clip", d.layer("x"), *bounds))


def clipped_by_bounds_with_an_axis(d):
    bounds = d.constant([0]), d.constant([6])
    return d.layer(d.op("Clip", d.layer("x"), *bounds))


def swish(d):
    return d.layer(d.silu(d.layer("x")))


def hard_swish(d):
    return d.layer(d.op("HardSwish", d.layer("x")))


def residual(d):
    trunk = d.op("Relu", d.layer("x"))
    branch = d.layer(d.op("Relu", d.layer(trunk)))
    return d.layer(d.op("Relu", d.op("Add", trunk, branch)))


def side_by_side(d):
    parts = [d.op("Relu", d.layer("x")), d.silu(d.layer("x"))]
    both = d.op("Concat", *parts, axis=-1 if d.is_product else 1)
    half = d.op(
        "Slice",
        both,
        *(
            d.op("Constant", value=numpy_helper.from_array(np.asarray([value], np.int64)))
            for value in (CHANNELS // 2, CHANNELS // 2 + CHANNELS, 2 if d.is_product else 1)
        ),
    )
    return d.layer(half)


def pooled(d):
    return d.layer(d.op("MaxPool", d.op("Relu", d.layer("x", 3, 1)), kernel_shape=[2, 2]))


def normalized(d):
    scale, bias, mean = (d.constant(d.rng.normal(0, 1, CHANNELS)) for _ in range(3))
    normal = d.op("BatchNormalization", "x", scale, bias, mean, d.constant(np.ones(CHANNELS)))
    return d.layer(d.op("Relu", normal))


def padded(d):
    return d.layer(d.op("Relu", d.layer("x")), 3, 1)


def gated(d):
    trunk = d.op("Relu", d.layer("x"))
    return d.layer(d.op("Tanh", d.op("Mul", trunk, d.op("Sigmoid", d.layer(trunk)))))


def signed(d):
    return d.layer(d.op("Tanh", d.layer("x")))


def given_out(d):
    d.layer(d.op("Relu", d.layer("x")))
    return next(node.output[0] for node in d.nodes if node.op_type == "Relu")


ROWS_TOO = [rectified, clipped_at_six, swish, hard_swish, residual, side_by_side]
MOVED = [
    *((net, False) for net in (*ROWS_TOO, pooled, normalized)),
    *((net, True) for net in ROWS_TOO),
    (clipped_by_bounds_with_an_axis, False),
]
LEFT = [padded, gated, signed, given_out]


@pytest.fixture
def make(make_model):
    def make(network, is_product=False):
        d = Drawing(is_product)
        result = network(d)
        shape = ROWS if is_product else PICTURE
        rng = np.random.default_rng(1)
        samples = [{"x": rng.normal(0, 1, shape).astype(np.float32)} for _ in range(8)]
        return make_model(d.nodes, d.weights, {"x": shape}, [result], opset=18), samples

    return make


def steps_used(model, feeds, run_model):
    """Returns, for each quantized activation but the input, how many integers it takes."""
    graph = Graph(model)
    read = [
        node for node in graph.nodes if node.op_type == "QuantizeLinear" and node.input[0] != "x"
    ]
    model.graph.output.extend(helper.make_empty_tensor_value_info(node.output[0]) for node in read)
    found = run_model(model, feeds)
    return [int(np.ptp(found[node.output[0]].astype(int))) for node in read]


@pytest.mark.parametrize(("network", "is_product"), MOVED)
def test_float_results_stay_and_integers_are_all_used(network, is_product, make, run_model):
    model, samples = make(network, is_product)
    result = quantize_model(model, samples, QuantizeSettings())
    assert any(line.startswith("centered") for line in result.simplified)
    centered = prepare_network(model, samples, QuantizeSettings()).graph.to_model()
    (name,) = (item.name for item in model.graph.output)
    expected = run_model(model, samples[0])[name]
    got = run_model(centered, samples[0])[name]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    everything = {"x": np.concatenate([sample["x"] for sample in samples])[:1] * 3}
    assert min(steps_used(result.model, everything, run_model)) > 200


@pytest.mark.parametrize("network", LEFT)
def test_what_would_compute_something_else_stays(network, make):
    model, samples = make(network)
    result = quantize_model(model, samples, QuantizeSettings())
    assert not any(line.startswith("centered") for line in result.simplified)


@pytest.mark.parametrize(("network", "is_product"), MOVED)
def test_noise_falls(network, is_product, make):
    model, samples = make(network, is_product)
    with_it, without = (
        quantize_model(model, samples, QuantizeSettings(centering=centering)).outputs_db
        for centering in (True, False)
    )
    assert min(with_it.values()) > min(without.values()) + 0.5


def test_zero_has_an_integer_of_its_own(make):
    model, samples = make(rectified)
    graph = Graph(quantize_model(model, samples, QuantizeSettings()).model)
    (clip,) = (node for node in graph.nodes if node.op_type == "Clip")
    quantizer = graph.consumers(clip.output[0])[0]
    low, scale = (float(graph.weights[name]) for name in (clip.input[1], quantizer.input[1]))
    assert low / scale == pytest.approx(-128, abs=1e-3)


def test_what_stays_in_float_stays_as_it_was(make, run_model):
    model, samples = make(residual)
    prepared = prepare_network(model, samples, QuantizeSettings())
    names = frozenset(item.node for item in prepared.quantized)
    assert any(node.op_type == "Clip" for node in prepared.graph.nodes)
    for network in (prepared.write_float(), prepared.with_float_nodes(names).graph.to_model()):
        kinds = [node.op_type for node in network.graph.node]
        assert kinds == [node.op_type for node in model.graph.node]
        (name,) = (item.name for item in model.graph.output)
        expected = run_model(model, samples[0])[name]
        got = run_model(network, samples[0])[name]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_a_float_activation_loses_its_sub(make):
    model, samples = make(swish)
    prepared = prepare_network(model, samples, QuantizeSettings())
    assert [node.op_type for node in prepared.graph.nodes].count("Sub") == 1
    names = frozenset(item.node for item in prepared.quantized)
    assert all(node.op_type != "Sub" for node in prepared.with_float_nodes(names).graph.nodes)
    assert all(node.op_type != "Sub" for node in prepared.write_float().graph.node)


@pytest.mark.parametrize(
    "options",
    [
        {"target": "openvino"},
        {"target": "onnxruntime"},
        {"activations": "int16"},
        {"activations": "float"},
        {"bias_correction": False},
    ],
)
def test_only_symmetric_int8_with_corrected_means_gains(options, make):
    model, samples = make(rectified)
    result = quantize_model(model, samples, QuantizeSettings(**options))
    assert not any(line.startswith("centered") for line in result.simplified)


@pytest.mark.parametrize(
    ("network", "is_moved"), [(swish, True), (hard_swish, True), (rectified, False)]
)
def test_openvino_without_zero_points_moves_what_is_int8(network, is_moved, make):
    model, samples = make(network)
    with_it, without = (
        quantize_model(
            model,
            samples,
            QuantizeSettings(target="openvino", symmetric=True, centering=centering),
        )
        for centering in (True, False)
    )
    assert is_moved == any(line.startswith("centered") for line in with_it.simplified)
    gain_db = min(with_it.outputs_db.values()) - min(without.outputs_db.values())
    assert gain_db > 0.5 if is_moved else gain_db == 0
