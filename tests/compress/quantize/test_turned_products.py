"""1x1 Convs that OpenVINO would make a product of, beside what it would misread, are guarded."""

import numpy as np
import pytest
from onnx import helper

from artifacts.openvino_guard import GUARD_SUFFIX
from compress.quantize.placement import last_layers, openvino_forms
from compress.quantize.placement.turned_products import guard_turned_products

SHAPE = (1, 8, 12, 12)
FLOAT_INPUTS = ({"activations": "float"}, {"activations": "int16"})
INT4 = {"weights": "int4", "int4_share": 1.0}


@pytest.fixture
def turned(make_model):
    """A 1x1 Conv between a Transpose or none and a Transpose, a Reshape or none."""

    def make(*, before=None, behind=None, shape=None, stride=1, factor=False, shown=False):
        rng = np.random.default_rng(0)
        channels = SHAPE[before[1]] if before else SHAPE[1]
        weights = {
            "w": rng.standard_normal((16, channels, 1, 1)).astype(np.float32),
            "scale": rng.uniform(0.5, 2, (16, 1, 1)).astype(np.float32),
        }
        nodes = []
        if before:
            nodes.append(helper.make_node("Transpose", ["x"], ["t"], "before", perm=before))
        operands = ["t" if before else "x", "w"]
        nodes.append(helper.make_node("Conv", operands, ["c"], "conv", strides=[stride] * 2))
        if factor:
            nodes.append(helper.make_node("Mul", ["c", "scale"], ["s"], "factor"))
        made = "s" if factor else "c"
        if behind:
            nodes.append(helper.make_node("Transpose", [made], ["r"], "behind", perm=behind))
        elif shape:
            weights["shape"] = np.array(shape)
            nodes.append(helper.make_node("Reshape", [made, "shape"], ["r"], "behind"))
        if shape and len(shape) == 5:
            weights["deep"] = rng.standard_normal((4, shape[1], 1, 1, 1)).astype(np.float32)
            nodes.append(helper.make_node("Conv", ["r", "deep"], ["d"], "deep"))
            made, shape, behind = "d", None, None
        nodes.append(helper.make_node("Neg", ["r" if behind or shape else made], ["y"], "last"))
        return make_model(nodes, weights, {"x": SHAPE}, ["y", "c"] if shown else ["y"], opset=21)

    return make


@pytest.fixture
def sample():
    return np.random.default_rng(1).standard_normal(SHAPE, np.float32)


WITH_INTEGER_INPUT = [
    {"behind": [0, 1, 3, 2], "stride": 2},
    {"behind": [0, 3, 2, 1], "stride": 3},
    {"behind": [0, 1, 3, 2], "stride": 2, "factor": True},
]
WITH_FLOAT_INPUT = [
    {"behind": [0, 2, 1, 3]},
    {"behind": [0, 2, 3, 1], "stride": 2},
    {"before": [0, 2, 1, 3]},
    {"before": [0, 3, 1, 2], "stride": 2},
    {"shape": [1, 16, -1], "stride": 2},
    {"shape": [1, 2, 8, 12, 12]},
]
BOTH_SIDES = {"before": [0, 2, 1, 3], "behind": [0, 2, 1, 3]}
RIGHT = [
    {"behind": [0, 2, 3, 1]},
    {"before": [0, 3, 1, 2]},
    {"shape": [1, 16, -1]},
    {"stride": 2},
    {"behind": [0, 2, 1, 3], "shown": True},
]


@pytest.mark.parametrize(
    ("options", "has_integer_inputs", "count"),
    [
        *((options, True, 1) for options in WITH_INTEGER_INPUT),
        *((options, False, 1) for options in WITH_FLOAT_INPUT),
        (BOTH_SIDES, False, 2),
        *((options, True, 0) for options in [*WITH_FLOAT_INPUT, BOTH_SIDES]),
        *((options, False, 0) for options in RIGHT),
    ],
)
def test_what_would_be_misread_is_guarded(
    options, has_integer_inputs, count, turned, rewrite, sample
):
    done, graph = rewrite(
        turned(**options),
        sample,
        lambda graph: guard_turned_products(graph, has_integer_inputs=has_integer_inputs),
    )
    assert done == ["conv"] * (count > 0)
    assert sum(node.name.endswith(GUARD_SUFFIX) for node in graph.nodes) == count


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
@pytest.mark.parametrize("options", WITH_INTEGER_INPUT)
def test_openvino_computes_an_int8_file_as_it_says(
    options, target, turned, sample, quantize_and_compare
):
    result, agreement_db = quantize_and_compare(turned(**options), sample, target)
    assert len(result.layers) == 1
    assert agreement_db > 50


@pytest.mark.parametrize("settings", [*FLOAT_INPUTS, INT4, INT4 | FLOAT_INPUTS[0]])
@pytest.mark.parametrize("options", [*WITH_FLOAT_INPUT, BOTH_SIDES])
def test_openvino_computes_files_of_other_integers_as_they_say(
    options, settings, turned, sample, quantize_and_compare
):
    assert quantize_and_compare(turned(**options), sample, **settings)[1] > 50


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        *((options, {}) for options in WITH_INTEGER_INPUT),
        *((options, item) for options in [*WITH_FLOAT_INPUT, BOTH_SIDES] for item in FLOAT_INPUTS),
        (WITH_FLOAT_INPUT[0], INT4),
    ],
)
def test_openvino_misreads_them_without_a_guard(
    options, settings, turned, sample, quantize_and_compare, monkeypatch
):
    """The negative control; once it fails, OpenVINO is mended and the guard can go."""
    monkeypatch.setattr(
        openvino_forms, "guard_turned_products", lambda graph, *, has_integer_inputs: []
    )
    assert quantize_and_compare(turned(**options), sample, **settings)[1] < 10


def test_a_conv_of_one_vector_reads_integer_weights_alone(
    make_model, sample, quantize_and_compare, monkeypatch
):
    monkeypatch.setattr(last_layers, "MOST_WORK", 0.0)
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((8, 8, 3, 3)).astype(np.float32),
        "v": rng.standard_normal((8, 8, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("GlobalAveragePool", ["c"], ["p"], "mean"),
        helper.make_node("Conv", ["p", "v"], ["q"], "vector"),
        helper.make_node("Transpose", ["q"], ["y"], "turn", perm=[0, 2, 1, 3]),
    ]
    model = make_model(nodes, weights, {"x": SHAPE}, ["y"])
    result, agreement_db = quantize_and_compare(model, sample)
    assert {item.node for item in result.layers} == {"conv", "vector"}
    assert agreement_db > 30
    monkeypatch.setattr(
        openvino_forms, "guard_turned_products", lambda graph, *, has_integer_inputs: []
    )
    assert quantize_and_compare(model, sample)[1] < 10
