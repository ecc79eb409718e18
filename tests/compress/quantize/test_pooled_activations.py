"""Activations behind a pool that OpenVINO would compute before it are guarded."""

import numpy as np
import pytest
from onnx import helper

from artifacts.openvino_guard import GUARD_SUFFIX, remove_guards
from compress.quantize.placement import openvino_forms
from compress.quantize.placement.pooled_activations import guard_pooled_activations

SHAPE = (1, 16, 16, 20)
ACTIVATIONS = ("Abs", "HardSwish", "Mish", "SiLU", "GELU")


@pytest.fixture
def pool(make_model):
    """A Conv, an activation before a MaxPool if there is one, and one behind it."""

    def make(activation, *, before="", operator="MaxPool"):
        rng = np.random.default_rng(0)
        weights = {
            "w": rng.standard_normal((8, 16, 1, 1)).astype(np.float32) / 4,
            "b": rng.standard_normal(8).astype(np.float32),
            "half": np.array(0.5, np.float32),
            "root": np.array(0.5**0.5, np.float32),
            "one": np.array(1, np.float32),
        }
        window = {"kernel_shape": [2, 2], "strides": [2, 2]}
        nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv")]
        if before:
            nodes.append(helper.make_node(before, ["c"], ["a"], "before"))
        pooled = "a" if before else "c"
        nodes.append(helper.make_node(operator, [pooled], ["p"], "pool", **window))
        if activation == "SiLU":
            nodes += [
                helper.make_node("Sigmoid", ["p"], ["s"], "sigmoid"),
                helper.make_node("Mul", ["p", "s"], ["y"], "silu"),
            ]
        elif activation == "GELU":
            nodes += [
                helper.make_node("Mul", ["p", "root"], ["scaled"], "scale"),
                helper.make_node("Erf", ["scaled"], ["e"], "erf"),
                helper.make_node("Add", ["e", "one"], ["lifted"], "lift"),
                helper.make_node("Mul", ["p", "half"], ["halved"], "halve"),
                helper.make_node("Mul", ["halved", "lifted"], ["y"], "gelu"),
            ]
        else:
            nodes.append(helper.make_node(activation, ["p"], ["y"], "activation"))
        return make_model(nodes, weights, {"x": SHAPE}, ["y"], opset=18)

    return make


@pytest.fixture
def sample():
    return np.random.default_rng(1).standard_normal(SHAPE, np.float32)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_guard_changes_nothing_and_can_be_taken_out(activation, pool, rewrite, sample):
    done, graph = rewrite(pool(activation), sample, guard_pooled_activations)
    assert done == ["pool"]
    model = graph.to_model()
    (guard,) = (node for node in model.graph.node if node.name.endswith(GUARD_SUFFIX))
    assert guard.op_type == "Max"
    assert len(remove_guards(model).graph.node) == len(model.graph.node) - 1


@pytest.mark.parametrize(
    ("activation", "others"),
    [("Relu", {}), ("Abs", {"before": "Sigmoid"}), ("Abs", {"operator": "AveragePool"})],
)
def test_what_is_right_without_has_no_guard(activation, others, pool, rewrite, sample):
    assert rewrite(pool(activation, **others), sample, guard_pooled_activations)[0] == []


@pytest.mark.parametrize("target", ["tensorrt", "openvino"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_openvino_computes_what_a_quantized_file_says(
    activation, target, pool, sample, quantize_and_compare
):
    result, agreement_db = quantize_and_compare(pool(activation), sample, target)
    assert len(result.layers) == 1
    assert agreement_db > 60


def test_a_factor_behind_the_conv_becomes_part_of_it(pool, sample, quantize_and_compare, rewrite):
    model = pool("Abs", before="Neg")
    assert rewrite(model, sample, guard_pooled_activations)[0] == ["pool"]
    assert quantize_and_compare(model, sample)[1] > 60


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_openvino_computes_activations_before_the_pool_without_a_guard(
    activation, pool, sample, quantize_and_compare, monkeypatch
):
    """The negative control; once it fails, OpenVINO is mended and the guard can go."""
    monkeypatch.setattr(openvino_forms, "guard_pooled_activations", lambda graph: [])
    assert quantize_and_compare(pool(activation), sample)[1] < 50


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_openvino_computes_float_activations_before_the_pool(
    activation, pool, sample, agreement_db
):
    """That the file is quantized has nothing to do with it."""
    assert agreement_db(pool(activation), {"x": sample}) < 60
