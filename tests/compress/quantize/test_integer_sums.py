"""Sums of which both addends are rounded: where, what OpenVINO makes of it, and who decides."""

import openvino
import pytest

from artifacts.errors import InputError
from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement import OpenVINO
from compress.quantize.settings import QuantizeSettings


def read_sums(model, **options):
    """Returns the quantized inputs of each Add, in order."""
    graph = Graph(model)
    placed, _ = OpenVINO(**options).place(graph)
    return [item.activations for item in placed if graph.node(item.node).op_type == "Add"]


BOTH, ONE = [(0, 1), (0, 1)], [(1,), (1,)]


@pytest.mark.parametrize(
    ("pattern", "sums"),
    [
        ("blocks", {"none": ONE, "blocks": BOTH, "pyramids": BOTH}),
        ("levels", {"none": [], "blocks": [], "pyramids": BOTH}),
    ],
)
def test_both_addends_are_rounded_where_it_is_asked_for(make_pattern, pattern, sums):
    for kind, wanted in sums.items():
        assert read_sums(make_pattern(pattern), integer_sums=kind) == wanted


@pytest.mark.parametrize("change", ["before", "behind", "unread"])
def test_a_block_that_no_relu_surrounds_keeps_one_branch(make_pattern, change):
    model = make_pattern("blocks")
    relus = [node for node in model.graph.node if node.op_type == "Relu"]
    if change == "before":
        relus[0].op_type = "Tanh"
    elif change == "behind":
        relus[2].op_type = "Tanh"
    else:
        model.graph.node[-1].op_type = "Sigmoid"
        del model.graph.node[-1].input[1:], model.graph.node[-1].attribute[:]
    changed = {"before": 0, "behind": 0, "unread": 1}[change]
    sums = read_sums(model, integer_sums="pyramids")
    assert sums[changed] == (1,)


def test_a_sum_that_is_to_stay_in_float_does(make_pattern):
    graph = Graph(make_pattern("levels"))
    first = next(node.name for node in graph.nodes if node.op_type == "Add")
    placed, _ = OpenVINO(integer_sums="pyramids").place(graph, frozenset({first}))
    assert not [item for item in placed if graph.node(item.node).op_type == "Add"]


@pytest.mark.parametrize("pattern", ["blocks", "levels"])
def test_openvino_computes_such_sums_inside_its_layers(make_pattern, samples, pattern):
    kernels = {}
    for integer_sums in ("none", "pyramids"):
        settings = QuantizeSettings(
            target="openvino", symmetric=True, integer_sums=integer_sums, equalization=False
        )
        quantized = quantize_model(make_pattern(pattern), samples, settings).model
        core = openvino.Core()
        network = core.read_model(quantized.SerializeToString())
        compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        kernels[integer_sums] = [
            node
            for node in compiled.get_runtime_model().get_ordered_ops()
            if ("add" in str(node.get_rt_info()["originalLayersNames"].value))
            and node.get_rt_info()["layerType"].value != "Convolution"
        ]
    assert len(kernels["none"]) == 2
    assert not kernels["pyramids"]


@pytest.mark.parametrize(
    ("pattern", "prefer", "saved", "taken"),
    [
        ("blocks", None, 0.03, "blocks"),
        ("blocks", None, 0.01, None),
        ("levels", None, 0.10, "pyramids"),
        ("levels", None, 0.03, None),
        ("levels", "speed", 0.03, "pyramids"),
        ("levels", "quality", 0.03, None),
    ],
)
def test_they_are_taken_where_that_saves_time(make_pattern, samples, pattern, prefer, saved, taken):
    """Those of pyramids cost quality, and have to save more."""

    def count(model):
        return sum(node.op_type == "QuantizeLinear" for node in model.graph.node)

    model = make_pattern(pattern)
    plain = QuantizeSettings(target="openvino", symmetric=True, integer_sums="none")
    usual = count(quantize_model(model, samples, plain).model)

    def measure(model):
        has_sums = count(model) > usual
        return 20.0 * (1 - saved * has_sums) if count(model) else 30.0

    settings = QuantizeSettings(target="openvino", symmetric=True, prefer=prefer)
    result = quantize_model(
        model, samples, settings, clock=lambda models: [measure(item) for item in models]
    )
    assert result.settings.integer_sums == taken


def test_a_network_without_such_sums_is_not_timed_for_them(make_pattern, samples):
    seen = []

    def clock(models):
        seen.append(len(models))
        return [2.0, 1.0]

    settings = QuantizeSettings(target="openvino", symmetric=True)
    quantize_model(make_pattern("upsample"), samples, settings, clock=clock)
    assert seen == [2]


def test_other_kinds_are_refused():
    with pytest.raises(InputError, match="integer_sums is 'some'; expected one of none, blocks"):
        QuantizeSettings(integer_sums="some")
