"""Gated tensors that all readers read in integers: which, and what OpenVINO makes of them."""

import openvino
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement import OpenVINO
from compress.quantize.settings import QuantizeSettings
from compress.quantize.timed_forms import choose_forms


def read_integers(model, integer_sums="gates", keep_float=frozenset()):
    """Returns (operator, quantized inputs) of all but the layers, in order."""
    graph = Graph(model)
    placed, _ = OpenVINO(integer_sums=integer_sums).place(graph, keep_float)
    nodes = [(graph.node(item.node), item) for item in placed if item.weight is None]
    return [(node.op_type, item.activations) for node, item in nodes]


LEVEL = [("GlobalAveragePool", (0,)), ("Mul", (0,)), ("Add", (0,))]


def test_all_that_reads_a_gated_tensor_reads_integers(make_pattern):
    model = make_pattern("gated_levels")
    assert read_integers(model, "pyramids") == []
    assert read_integers(model) == [*LEVEL, ("Resize", (0,)), *LEVEL]


def test_squeeze_and_excite_without_a_sum(make_pattern):
    assert read_integers(make_pattern("gate")) == LEVEL[:2]


@pytest.mark.parametrize("obstacle", ["output", "other reader", "keep_float", "no gate"])
def test_a_tensor_that_something_else_needs_in_float_stays(make_pattern, obstacle):
    model = make_pattern("gate")
    kept = frozenset()
    gate = next(node for node in model.graph.node if node.op_type == "HardSigmoid")
    product = next(node for node in model.graph.node if gate.output[0] in node.input)
    gated = product.input[0]
    if obstacle == "output":
        model.graph.output.append(helper.make_tensor_value_info(gated, 1, (1, 8, 12, 16)))
    elif obstacle == "other reader":
        model.graph.node.append(helper.make_node("Tanh", [gated], ["seen"], "tanh"))
        model.graph.output.append(helper.make_tensor_value_info("seen", 1, (1, 8, 12, 16)))
    elif obstacle == "keep_float":
        kept = frozenset({product.name})
    else:
        product.input[1] = gated
    assert read_integers(model, keep_float=kept) == []


@pytest.mark.parametrize("pattern", ["gate", "gated_levels"])
def test_openvino_averages_bytes(make_pattern, samples, pattern):
    read = {}
    for integer_sums in ("pyramids", "gates"):
        settings = QuantizeSettings(target="openvino", integer_sums=integer_sums)
        quantized = quantize_model(make_pattern(pattern), samples, settings).model
        core = openvino.Core()
        network = core.read_model(quantized.SerializeToString())
        compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        nodes = compiled.get_runtime_model().get_ordered_ops()
        averages = [node for node in nodes if node.get_rt_info()["layerType"].value == "Reduce"]
        read[integer_sums] = {node.input(0).get_element_type().size for node in averages}
    assert read == {"pyramids": {4}, "gates": {1}}


@pytest.mark.parametrize(("saved", "taken"), [(0.10, "gates"), (0.03, None)])
def test_they_are_taken_where_that_saves_time(make_pattern, samples, saved, taken):
    def measure(model):
        quantizers = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
        pools = [node for node in model.graph.node if node.op_type == "GlobalAveragePool"]
        reads_bytes = any("dequantized" in node.input[0] for node in pools)
        return 20.0 * (1 - saved * reads_bytes) if quantizers else 30.0

    settings = QuantizeSettings(target="openvino", symmetric=True)
    result = quantize_model(
        make_pattern("gated_levels"),
        samples,
        settings,
        clock=lambda models: [measure(item) for item in models],
    )
    assert result.settings.integer_sums == taken


@pytest.mark.parametrize(
    ("pattern", "prefer", "is_timed"),
    [
        ("gate", None, False),
        ("gate", "speed", True),
        ("gated_levels", None, True),
        ("gated_shortcut", None, True),
    ],
)
def test_they_are_timed_by_default_where_a_sum_is_made_of_them(
    make_pattern, samples, pattern, prefer, is_timed
):
    batches = []

    def measure(models):
        batches.append(len(models))
        return [20.0] * len(models)

    settings = QuantizeSettings(
        target="openvino",
        symmetric=False,
        swish_by_tanh=False,
        integer_attention=False,
        prefer=prefer,
    )
    choose_forms(make_pattern(pattern), samples, settings, measure)
    assert bool(batches) == is_timed
