"""Forms that a measurement decides about: zero points of activations, and SiLU with tanh."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from artifacts.errors import InputError
from compress.quantize.api import quantize_model
from compress.quantize.placement.movement import VIEWS
from compress.quantize.settings import QuantizeSettings


@pytest.fixture
def leaky_model(make_model):
    """A layer that reads negative values, and one that reads none."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal((8, inputs, 3, 3)).astype(np.float32)
        for name, inputs in (("w0", 3), ("w1", 8), ("w2", 8))
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1] * 4),
        helper.make_node("LeakyRelu", ["a"], ["l"], alpha=0.1),
        helper.make_node("Conv", ["l", "w1"], ["b"], "second", pads=[1] * 4),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["y"], "third", pads=[1] * 4),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["y"])


def pictures():
    rng = np.random.default_rng(1)
    return [{"x": rng.random((1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]


def clock(ms_of_a_zero_point, seen=None):
    """A machine on which a layer takes 3 ms, with a zero point more, and 8 ms in float."""

    def measure(models):
        times = []
        for model in models:
            points = zero_points(model)
            slow = sum(dtype == np.uint8 and value > 0 for dtype, value in points.values())
            times.append(3 * 8.0 - 5.0 * len(points) + ms_of_a_zero_point * slow)
        if seen is not None:
            seen.append(times)
        return times

    return measure


def zero_points(model):
    """Returns type and zero point of each quantized activation."""
    weights = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    quantizers = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    points = {node.input[0]: weights[node.input[2]] for node in quantizers}
    return {tensor: (point.dtype, int(point)) for tensor, point in points.items()}


@pytest.mark.parametrize(("prefer", "little_ms"), [(None, 0.3), ("speed", 0.1)])
def test_they_go_where_they_cost_time(leaky_model, prefer, little_ms):
    settings = QuantizeSettings(target="openvino", prefer=prefer)
    slow = quantize_model(leaky_model, pictures(), settings, clock=clock(1.0))
    assert zero_points(slow.model) == {
        "x": (np.uint8, 0),
        "l": (np.int8, 0),
        "r": (np.uint8, 0),
    }
    assert slow.settings.symmetric
    free = quantize_model(leaky_model, pictures(), settings, clock=clock(little_ms))
    dtype, point = zero_points(free.model)["l"]
    assert dtype == np.uint8
    assert point > 0


@pytest.mark.parametrize("symmetric", [True, False])
def test_who_says_which_is_not_measured(leaky_model, symmetric):
    seen = []
    settings = QuantizeSettings(target="openvino", symmetric=symmetric)
    result = quantize_model(leaky_model, pictures(), settings, clock=clock(1.0, seen))
    assert zero_points(result.model)["l"][0] == (np.int8 if symmetric else np.uint8)
    assert len(seen) == 1


@pytest.fixture
def half_padded_model(make_model):
    """A padded Conv reads l, behind a move, and a pointwise one reads m."""
    rng = np.random.default_rng(0)
    shapes = {"w0": (8, 3, 1, 1), "w1": (8, 8, 3, 3), "w2": (4, 8, 1, 1)}
    weights = {k: rng.standard_normal(v).astype(np.float32) for k, v in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first"),
        helper.make_node("LeakyRelu", ["a"], ["l"], "leaky", alpha=0.1),
        helper.make_node("DepthToSpace", ["l"], ["d"], "move", blocksize=1),
        helper.make_node("Conv", ["d", "w1"], ["b"], "padded", pads=[1] * 4),
        helper.make_node("LeakyRelu", ["b"], ["m"], "leakier", alpha=0.1),
        helper.make_node("Conv", ["m", "w2"], ["y"], "pointwise"),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["y"])


def point_clock(ms_of_padded, ms_of_pointwise):
    """A machine on which INT8 takes 10 ms, 8 more per float layer, and more with points at l, m."""

    def measure(models):
        times = []
        for model in models:
            points = zero_points(model)
            has = {name: points[name][1] > 0 if name in points else False for name in "lm"}
            ms = 10.0 + ms_of_padded * has["l"] + ms_of_pointwise * has["m"]
            times.append(ms + 8.0 * (3 - len(points.keys() & {"x", "l", "m"})))
        return times

    return measure


@pytest.mark.parametrize(
    ("prefer", "ms_of_padded", "ms_of_pointwise", "spared", "symmetric"),
    [
        (None, 2.0, 0.1, True, None),
        (None, 2.0, 2.0, None, True),
        (None, 0.2, 0.1, None, None),
        ("balanced", 0.4, 0.0, None, None),
        ("quality", 1.1, 0.0, None, None),
        ("quality", 3.0, 1.0, True, None),
    ],
)
def test_zero_points_go_where_they_cost_more_than_they_bring(
    half_padded_model, prefer, ms_of_padded, ms_of_pointwise, spared, symmetric
):
    settings = QuantizeSettings(target="openvino", prefer=prefer)
    measure = point_clock(ms_of_padded, ms_of_pointwise)
    result = quantize_model(half_padded_model, pictures(), settings, clock=measure)
    assert (result.settings.spares_padded, result.settings.symmetric) == (spared, symmetric)
    points = zero_points(result.model)
    assert (points["l"][1] > 0) == (spared is None and symmetric is None)
    assert points["l"][0] == (np.uint8 if points["l"][1] > 0 else np.int8)
    assert (points["m"][1] > 0) == (symmetric is None)


@pytest.mark.parametrize(("ms_of_points", "has_float_layers"), [(0.0, True), (0.4, False)])
def test_the_time_that_zero_points_take_is_not_there_for_layers_in_float(
    half_padded_model, ms_of_points, has_float_layers
):
    def measure(models):
        times = []
        for model in models:
            points = zero_points(model)
            has_points = any(point > 0 for _, point in points.values())
            layers_in_float = 3 - len(points.keys() & {"x", "l", "m"})
            ms = 10.0 + ms_of_points * has_points + 0.45 * layers_in_float
            times.append(ms if points else 40.0)
        return times

    settings = QuantizeSettings(target="openvino", prefer="balanced")
    result = quantize_model(half_padded_model, pictures(), settings, clock=measure)
    assert result.settings.symmetric is None
    assert bool(result.precision.float_nodes) == has_float_layers
    assert 10.0 + ms_of_points <= result.precision.chosen.latency_ms <= 10.6


@pytest.mark.parametrize(("ms_of_padded", "forms"), [(0.1, [2]), (2.0, [2, 2])])
def test_some_zero_points_are_timed_only_where_they_are_slow(
    half_padded_model, ms_of_padded, forms
):
    seen = []
    measure = point_clock(ms_of_padded, 0.1)

    def count(models):
        seen.append(len(models))
        return measure(models)

    quantize_model(half_padded_model, pictures(), QuantizeSettings(target="openvino"), clock=count)
    beside_float = 2
    assert seen == [*forms, beside_float]


def test_without_negative_values_nothing_is_timed_for_it(leaky_model):
    seen = []
    leaky_model.graph.node[1].op_type = "Relu"
    del leaky_model.graph.node[1].attribute[:]
    quantize_model(
        leaky_model, pictures(), QuantizeSettings(target="openvino"), clock=clock(1.0, seen)
    )
    assert len(seen) == 1


@pytest.mark.parametrize(("target", "symmetric"), [("tensorrt", False), ("onnxruntime", True)])
def test_what_the_target_does_not_take_is_refused(target, symmetric):
    with pytest.raises(InputError, match=f"symmetric is {symmetric} with target"):
        QuantizeSettings(target=target, symmetric=symmetric)


@pytest.fixture
def swish_model(make_model):
    """Two layers with a SiLU between them."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal((8, inputs, 3, 3)).astype(np.float32)
        for name, inputs in (("w0", 3), ("w1", 8))
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Sigmoid", ["a"], ["g"]),
        helper.make_node("Mul", ["a", "g"], ["s"]),
        helper.make_node("Conv", ["s", "w1"], ["y"], "second", pads=[1] * 4),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["y"])


def swish_clock(ms_of_tanh, ms_of_a_zero_point):
    """A machine on which INT8 takes 10 ms, and more with tanh or with a zero point."""

    def measure(models):
        times = []
        for model in models:
            points = zero_points(model)
            has_point = any(dtype == np.uint8 and value > 0 for dtype, value in points.values())
            has_tanh = any(node.op_type == "Tanh" for node in model.graph.node)
            ms = 10.0 + ms_of_tanh * has_tanh + ms_of_a_zero_point * has_point
            times.append(ms if points else 30.0)
        return times

    return measure


@pytest.mark.parametrize(
    ("ms_of_tanh", "ms_of_a_zero_point", "by_tanh", "symmetric"),
    [
        (-2.0, 0.0, True, None),
        (-2.0, 4.0, True, True),
        (2.0, 4.0, None, True),
        (-0.1, 0.1, None, None),
    ],
)
def test_silu_goes_by_tanh_where_that_is_faster(
    swish_model, ms_of_tanh, ms_of_a_zero_point, by_tanh, symmetric
):
    measure = swish_clock(ms_of_tanh, ms_of_a_zero_point)
    result = quantize_model(
        swish_model, pictures(), QuantizeSettings(target="openvino"), clock=measure
    )
    assert result.settings.swish_by_tanh == by_tanh
    assert result.settings.symmetric == symmetric
    operators = {node.op_type for node in result.model.graph.node}
    assert ("Tanh" in operators) == bool(by_tanh)
    assert ("Sigmoid" in operators) != bool(by_tanh)


@pytest.mark.parametrize("swish_by_tanh", [True, False])
def test_who_says_how_silu_is_written_is_not_overruled(swish_model, swish_by_tanh):
    measure = swish_clock(2.0 if swish_by_tanh else -2.0, 0.0)
    settings = QuantizeSettings(target="openvino", swish_by_tanh=swish_by_tanh)
    result = quantize_model(swish_model, pictures(), settings, clock=measure)
    assert result.settings.swish_by_tanh is swish_by_tanh
    assert any(node.op_type == "Tanh" for node in result.model.graph.node) == swish_by_tanh


def attention_clock(share):
    """A machine on which INT8 takes 10 ms, and a share of it with attention in integers."""

    def measure(models):
        return [
            30.0 if not count else 10.0 * (share if count > 5 else 1.0)
            for count in (
                [node.op_type for node in model.graph.node].count("QuantizeLinear")
                for model in models
            )
        ]

    return measure


def read_by_products(model):
    """Returns the nodes that make what MatMuls read, before it was turned and reshaped."""
    made = {name: node for node in model.graph.node for name in node.output}
    found = []
    for node in model.graph.node:
        for name in node.input if node.op_type == "MatMul" else ():
            while made[name].op_type in VIEWS:
                name = made[name].input[0]
            found.append(made[name])
    return found


@pytest.mark.parametrize(
    ("prefer", "share", "weights", "taken"),
    [
        (None, 0.9, "int8", True),
        (None, 0.97, "int8", None),
        ("speed", 0.97, "int8", True),
        (None, 1.2, "int8", None),
        (None, 0.5, "int8-pairs", None),
    ],
)
def test_attention_goes_by_integers_where_that_saves_time_and_they_fit(
    make_pattern, samples, prefer, share, weights, taken
):
    model = make_pattern("attention")
    settings = QuantizeSettings(
        target="openvino", weights=weights, prefer=prefer, integer_sums="none"
    )
    result = quantize_model(model, samples, settings, clock=attention_clock(share))
    assert result.settings.integer_attention is taken
    kinds = {node.op_type for node in read_by_products(result.model)}
    assert ("DequantizeLinear" in kinds) == (taken is True)


@pytest.mark.parametrize("integer_attention", [True, False])
def test_who_says_how_attention_is_computed_is_not_overruled(
    make_pattern, samples, integer_attention
):
    settings = QuantizeSettings(target="openvino", integer_attention=integer_attention)
    measure = attention_clock(1.2 if integer_attention else 0.5)
    result = quantize_model(make_pattern("attention"), samples, settings, clock=measure)
    assert result.settings.integer_attention is integer_attention


def test_what_attention_reads_in_integers_has_no_zero_points(make_pattern, samples):
    settings = QuantizeSettings(target="openvino", integer_attention=True)
    quantized = quantize_model(make_pattern("attention"), samples, settings).model
    stored = {item.name: numpy_helper.to_array(item) for item in quantized.graph.initializer}
    read = [stored[node.input[2]] for node in read_by_products(quantized)]
    assert [int(value) for value in read] == [0, 0, 0, 0]
    assert {value.dtype for value in read} == {np.dtype(np.int8)}, "probabilities are on the right"


@pytest.fixture
def trunk_model(make_model):
    """Two blocks x + f(x) without an activation behind the sum."""
    rng = np.random.default_rng(0)
    weights = {f"w{at}": rng.normal(0, 0.3, (8, 8, 1, 1)).astype(np.float32) for at in range(5)}
    nodes = [helper.make_node("Conv", ["x", "w4"], ["t0"], "stem")]
    for at in (0, 1):
        nodes += [
            helper.make_node("Conv", [f"t{at}", f"w{2 * at}"], [f"a{at}"], f"wide{at}"),
            helper.make_node("Relu", [f"a{at}"], [f"r{at}"]),
            helper.make_node("Conv", [f"r{at}", f"w{2 * at + 1}"], [f"b{at}"], f"narrow{at}"),
            helper.make_node("Add", [f"t{at}", f"b{at}"], [f"t{at + 1}"], f"sum{at}"),
        ]
    return make_model(nodes, weights, {"x": (1, 8, 8, 8)}, ["t2"])


def trunk_clock(share):
    """A machine on which INT8 takes 10 ms, and a share of it where an Add reads integers."""

    def measure(models):
        times = []
        for model in models:
            made = {name: node.op_type for node in model.graph.node for name in node.output}
            adds = [node for node in model.graph.node if node.op_type == "Add"]
            reads = any(
                made.get(name) == "DequantizeLinear" for node in adds for name in node.input
            )
            times.append(
                10.0 * (share if reads else 1.0) if "QuantizeLinear" in made.values() else 30.0
            )
        return times

    return measure


@pytest.mark.parametrize(
    ("prefer", "share", "taken"),
    [("speed", 0.95, True), ("speed", 0.99, None), ("speed", 1.1, None), ("balanced", 0.9, None)],
)
def test_sums_on_a_trunk_are_rounded_for_speed_where_that_saves_time(
    trunk_model, prefer, share, taken
):
    settings = QuantizeSettings(target="openvino", prefer=prefer, integer_sums="none")
    rng = np.random.default_rng(1)
    data = [{"x": rng.normal(0, 1, (1, 8, 8, 8)).astype(np.float32)} for _ in range(3)]
    result = quantize_model(trunk_model, data, settings, clock=trunk_clock(share))
    assert result.settings.trunk_sums is taken
