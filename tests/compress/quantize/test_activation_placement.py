"""Activations, gates and decoders: where their Q/DQ pairs are, and that runtimes compute them."""

import importlib.util
from functools import partial
from pathlib import Path

import numpy as np
import openvino
import pytest

from artifacts.openvino_guard import remove_guards
from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.observers import MinMax
from compress.quantize.placement import (
    PLACEMENTS,
    OnnxRuntime,
    last_layers,
    tensorrt,
    vector_layers,
)
from compress.quantize.settings import QuantizeSettings


def load_patterns(name):
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PATTERNS = load_patterns("activation_patterns")
EXTREMA = ("squeeze_maximum", "squeeze_minimum", "squeeze_active_minimum", "spatial")
TOKEN_MEANS = ("token_mean", "token_mean_silu")
EXPLICIT = ("tensorrt", "openvino")


ALL_FLOAT = ("gelu", "mish", "point_context", "spatial", "squeeze_minimum", "token_mean")
"""How networks begin of which onnxruntime's placement leaves everything in float."""
CASES = [(name, target) for name in PATTERNS.NETWORKS for target in EXPLICIT]
CASES += [(name, "onnxruntime") for name in PATTERNS.NETWORKS if not name.startswith(ALL_FLOAT)]


@pytest.fixture(scope="module")
def quantized():
    """What was quantized so far, by network and target."""
    return {}


@pytest.fixture
def make_network(make_model):
    def make(name):
        net = load_patterns("network_patterns").Layers()
        result = PATTERNS.NETWORKS[name](net)
        return make_model(net.nodes, net.weights, {"x": (1, 3, 12, 16)}, [result], opset=18)

    return make


@pytest.fixture
def quantize(make_network, samples, monkeypatch, quantized, exact_weights):
    """Quantizes a network, as if its tiny layers were large enough to pay."""
    monkeypatch.setattr(vector_layers, "MOST_WEIGHTS", 0)
    eager = partial(OnnxRuntime, fewest_multiplications=0, fewest_at_border=0)
    monkeypatch.setitem(PLACEMENTS, "onnxruntime", eager)

    def run(name, target):
        if (name, target) not in quantized:
            settings = QuantizeSettings(
                target=target,
                observer=MinMax(),
                weights=exact_weights,
                equalization=False,
                centering=False,
            )
            model = quantize_model(make_network(name), samples[:2], settings).model
            quantized[name, target] = model
        return Graph(quantized[name, target])

    return run


def quantized_tensors(graph):
    return [node.input[0] for node in graph.nodes if node.op_type == "QuantizeLinear"]


def reads_integers(graph, node):
    makers = [graph.producer(name) for name in node.input]
    return [maker is not None and maker.op_type == "DequantizeLinear" for maker in makers]


def run_openvino(model, feeds):
    core = openvino.Core()
    network = core.read_model(model.SerializeToString())
    compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return next(iter(compiled(list(feeds.values())).values()))


def sqnr_db(wanted, got):
    return 10 * np.log10(np.square(wanted).sum() / max(np.square(wanted - got).sum(), 1e-12))


@pytest.mark.parametrize("target", EXPLICIT)
@pytest.mark.parametrize("activation", PATTERNS.ACTIVATIONS)
def test_the_only_pair_stands_behind_the_activation(activation, target, quantize):
    graph = quantize(activation, target)
    assert len(quantized_tensors(graph)) == 2
    first, last = (node for node in graph.nodes if node.op_type == "Conv")
    read = graph.producer(graph.producer(last.input[0]).input[0])
    assert all(reader.op_type != "QuantizeLinear" for reader in graph.consumers(first.output[0]))
    between = {"Conv", "QuantizeLinear", "DequantizeLinear"}
    assert graph.producer(read.input[0]).op_type not in between
    for node in graph.nodes:
        if node.op_type not in between:
            assert not any(reads_integers(graph, node))


@pytest.mark.parametrize(("name", "target"), CASES)
def test_no_sigmoid_softmax_or_exponential_is_quantized(name, target, quantize):
    """onnxruntime dequantizes before them; none of their results is rounded, and no bins are."""
    graph = quantize(name, target)
    makers = [graph.producer(tensor) for tensor in quantized_tensors(graph)]
    kinds = {maker.op_type for maker in makers if maker is not None}
    assert not kinds & {"Sigmoid", "HardSigmoid", "Softmax", "Exp", "Erf", "Tanh", "Softplus"}


@pytest.mark.parametrize(("name", "target"), CASES)
def test_no_tensor_has_two_pairs(name, target, quantize):
    tensors = quantized_tensors(quantize(name, target))
    assert len(tensors) == len(set(tensors)) > 0


@pytest.mark.parametrize("target", EXPLICIT)
@pytest.mark.parametrize("name", PATTERNS.GATES)
def test_the_pool_and_the_product_read_the_trunk_in_float(name, target, quantize):
    graph = quantize(name, target)
    product = next(node for node in reversed(graph.nodes) if node.op_type == "Mul")
    trunk = product.input[0]
    readers = {node.op_type for node in graph.consumers(trunk)}
    assert "QuantizeLinear" not in readers
    assert readers & {"GlobalAveragePool", "ReduceMean", "ReduceMin"}
    assert quantized_tensors(graph)[-1] == product.output[0]


@pytest.mark.parametrize("target", EXPLICIT)
@pytest.mark.parametrize("name", EXTREMA)
def test_what_reads_an_extremum_reads_integers_behind_a_guard(name, target, quantize):
    """`test_runtimes_compute_what_the_file_says` holds that OpenVINO is right there."""
    graph = quantize(name, target)
    layers = [node for node in graph.nodes if node.op_type == "Conv"]
    assert all(reads_integers(graph, node)[0] for node in layers)
    (guard,) = [node for node in graph.nodes if node.op_type == "Max"]
    assert [node.op_type for node in graph.consumers(guard.output[0])] == ["QuantizeLinear"]
    bare = remove_guards(graph.to_model())
    assert not {"Max", "LeakyRelu"} & {node.op_type for node in bare.graph.node}


@pytest.mark.parametrize("name", TOKEN_MEANS)
def test_what_reads_scaled_means_of_an_inner_axis_stays_in_float(name, make_network, monkeypatch):
    monkeypatch.setattr(last_layers, "MOST_WORK", 0.0)
    graph = Graph(make_network(name))
    _, declined = PLACEMENTS["openvino"]().place(graph)
    (layer,) = [item.node for item in declined if "scaled behind a reduction" in item.reason]
    assert graph.node(layer).op_type == "Gemm"
    norm = next(node for node in graph.nodes if node.op_type == "BatchNormalization")
    graph.node(layer).input[0] = norm.input[0]
    graph.nodes.remove(norm)
    graph.index()
    assert PLACEMENTS["openvino"]().place(graph)[1] == []


@pytest.mark.parametrize("target", EXPLICIT)
def test_what_reads_a_repeated_extremum_is_quantized(target, make_network):
    """`test_runtimes_compute_what_the_file_says` holds that OpenVINO is right there."""
    placed, declined = PLACEMENTS[target]().place(Graph(make_network("point_context")))
    assert not declined
    assert len([item for item in placed if item.weight is not None]) == 2


def test_what_an_extremum_scales_is_quantized(make_network):
    """A gate without layers ends the search: the trunk behind the product reads integers."""
    model = make_network("spatial")
    conv = [node for node in model.graph.node if node.op_type == "Conv"][1]
    maximum = next(node for node in model.graph.node if node.op_type == "ReduceMax")
    for node in model.graph.node:
        for position, tensor in enumerate(node.input):
            if tensor == conv.output[0]:
                node.input[position] = maximum.output[0]
    model.graph.node.remove(conv)
    placed, declined = PLACEMENTS["openvino"]().place(Graph(model))
    assert not declined
    assert len([item for item in placed if item.weight is not None]) == 2


@pytest.mark.parametrize("name", [*EXTREMA, *TOKEN_MEANS])
def test_openvino_misreads_integers_behind_a_reduction(
    name, make_network, samples, run_model, monkeypatch, exact_weights
):
    """The negative control; once it fails, OpenVINO is mended and the rule can go."""
    monkeypatch.setattr(tensorrt, "find_layers_behind_reduction", lambda graph: {})
    monkeypatch.setattr(vector_layers, "MOST_WEIGHTS", 0)
    monkeypatch.setattr(last_layers, "MOST_WORK", 0.0)
    settings = QuantizeSettings(
        target="openvino", observer=MinMax(), weights=exact_weights, equalization=False
    )
    model = remove_guards(quantize_model(make_network(name), samples[:2], settings).model)
    (result,) = (item.name for item in model.graph.output)
    wanted = run_model(model, samples[0])[result]
    assert sqnr_db(wanted, run_openvino(model, samples[0])) < 30


@pytest.mark.parametrize("target", EXPLICIT)
@pytest.mark.parametrize("name", ["squeeze_conv", "squeeze_linear", "channel_conv"])
def test_other_gates_have_integer_weights_unless_small_for_tensorrt(name, target, make_network):
    """Their weights are what takes time, even for one pixel; see docs/placement.md."""
    graph = Graph(make_network(name))
    placed, declined = PLACEMENTS[target]().place(graph)
    layers = [node.name for node in graph.nodes if node.op_type in ("Conv", "Gemm")]
    small = layers[1:-1] if target == "tensorrt" and name.startswith("squeeze") else []
    assert [item.node for item in declined] == small
    kept = [name for name in layers if name not in small]
    assert kept == [item.node for item in placed if item.weight is not None]


@pytest.mark.parametrize("target", EXPLICIT)
@pytest.mark.parametrize("activation", PATTERNS.SHORTCUTS)
def test_a_shortcut_added_to_an_activation_stays_in_float(activation, target, quantize):
    """The sum is one loop with the activation; see docs/placement.md for what integers cost."""
    graph = quantize(f"bottleneck_{activation}", target)
    join = next(node for node in graph.nodes if node.op_type == "Concat")
    assert all(reads_integers(graph, join))
    added = graph.producer(graph.producer(graph.producer(join.input[2]).input[0]).input[0])
    adds = [node for node in graph.nodes if node.op_type == "Add"]
    assert adds
    assert added.op_type in ("Add", "QuantizeLinear", "LeakyRelu")
    assert not any(any(reads_integers(graph, node)) for node in adds)


@pytest.mark.parametrize("target", PLACEMENTS)
@pytest.mark.parametrize("name", PATTERNS.DECODERS)
def test_nothing_behind_a_head_is_quantized(name, target, quantize):
    """Only Convs over the picture read integers: no bins, no sides, no boxes, no scores."""
    graph = quantize(name, target)
    readers = [node for node in graph.nodes if any(reads_integers(graph, node))]
    kinds = {node.op_type for node in readers}
    assert kinds <= ({"Conv"} if target != "onnxruntime" else {"Conv", "Reshape", "Relu"})
    weights = [graph.producer(node.input[1]) for node in readers if node.op_type == "Conv"]
    assert len([maker for maker in weights if maker is not None]) in (1, 2)


@pytest.mark.parametrize(("name", "target"), CASES)
def test_runtimes_compute_what_the_file_says(
    name, target, make_network, quantize, samples, run_model
):
    """35 dB: values on the edge between two integers may fall either way."""
    model = make_network(name)
    quantized = quantize(name, target).to_model()
    (result,) = (item.name for item in model.graph.output)
    wanted = run_model(quantized, samples[0])[result]
    assert sqnr_db(wanted, run_openvino(quantized, samples[0])) > 35
    assert sqnr_db(run_model(model, samples[0])[result], wanted) > 20


@pytest.mark.parametrize("name", ["gelu_erf", "gelu_tanh", "mish"])
def test_onnxruntime_declines_a_layer_with_an_activation_it_has_no_integers_for(name, make_network):
    placement = OnnxRuntime(fewest_multiplications=0, fewest_at_border=0)
    placed, declined = placement.place(Graph(make_network(name)))
    assert placed == []
    assert any("needs its result in float" in item.reason for item in declined)
