"""What a kernel has outside the picture at every place is cut, and the results stay."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.api import quantize_model
from compress.quantize.graph import attribute
from compress.quantize.settings import QuantizeSettings
from compress.quantize.unseen_taps import cut_unseen_taps


@pytest.fixture
def make_conv(make_model):
    """Returns a function that makes a network of one Conv."""

    def make(shape, kernel=(3, 3), group=1, **settings):
        rng = np.random.default_rng(0)
        weight = rng.normal(size=(4, shape[1] // group, *kernel)).astype(np.float32)
        node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", group=group, **settings)
        return make_model([node], {"w": weight}, {"x": shape}, ["y"])

    return make


@pytest.mark.parametrize(
    ("shape", "settings", "size", "pads"),
    [
        ((1, 4, 8, 12), {"dilations": [12, 12], "pads": [12] * 4}, (1, 1), [0] * 4),
        ((1, 4, 8, 12), {"dilations": [8, 11], "pads": [8, 11] * 2}, (1, 3), [0, 11, 0, 11]),
        (
            (1, 4, 5, 5),
            {"dilations": [3, 5], "pads": [6, 10] * 2, "kernel": (5, 5)},
            (3, 1),
            [3, 0] * 2,
        ),
        ((1, 4, 6, 9), {"dilations": [6, 1], "pads": [6, 1] * 2, "group": 4}, (1, 3), [0, 1] * 2),
        ((1, 4, 1, 9), {"pads": [1] * 4, "strides": [1, 2]}, (1, 3), [0, 1] * 2),
        ((1, 4, 3, 9), {"pads": [2, 0, 1, 0], "strides": [4, 1]}, (1, 3), [0] * 4),
        ((1, 4, 1, 4), {"auto_pad": "SAME_UPPER"}, (1, 3), [0, 1] * 2),
        ((1, 4, 7), {"dilations": [9], "pads": [9, 9], "kernel": (3,)}, (1,), [0, 0]),
    ],
    ids=["both", "one axis", "of five", "depthwise", "a row", "one place", "auto", "sequence"],
)
def test_unseen_taps_are_cut(shape, settings, size, pads, make_conv, rewrite):
    picture = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    done, graph = rewrite(make_conv(shape, **settings), picture, cut_unseen_taps)
    (conv,) = graph.nodes
    assert graph.weights[conv.input[1]].shape[2:] == size
    assert list(attribute(conv, "pads", [])) == pads
    (line,) = done
    assert line.startswith("cut the kernel of conv from ")


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((1, 4, 9, 13), {"dilations": [8, 12], "pads": [8, 12] * 2}),
        ((1, 4, 2, 2), {"dilations": [3, 3], "pads": [1, 1, 5, 5], "strides": [9, 9]}),
        ((1, 4, 3, 3), {}),
    ],
    ids=["all are seen", "no pads would do", "no pads"],
)
def test_kernels_that_see_all_stay(shape, settings, make_conv, rewrite):
    picture = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    done, _ = rewrite(make_conv(shape, **settings), picture, cut_unseen_taps)
    assert done == []


@pytest.mark.parametrize("seed", range(60))
def test_the_results_stay_whatever_the_geometry(seed, make_conv, rewrite):
    rng = np.random.default_rng(seed)
    shape = (1, 4, *rng.integers(1, 7, 2).tolist())
    kernel, steps = rng.integers(1, 6, 2), rng.integers(1, 6, 2)
    reach = (kernel - 1) * steps
    pads = np.stack([rng.integers(0, reach + 1), rng.integers(0, reach + 1)])
    pads[1] = np.maximum(pads[1], reach + 1 - shape[2:] - pads[0])
    settings = {"dilations": steps.tolist(), "pads": pads.ravel().tolist()}
    settings["strides"] = rng.integers(1, 5, 2).tolist()
    picture = rng.normal(size=shape).astype(np.float32)
    rewrite(make_conv(shape, tuple(kernel), **settings), picture, cut_unseen_taps, 1e-5)


def test_convs_that_share_a_kernel_keep_what_each_sees(make_model, rewrite):
    weight = np.random.default_rng(0).normal(size=(4, 4, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], [f"y{step}"], dilations=[step] * 2, pads=[step] * 4)
        for step in (1, 6)
    ]
    model = make_model(nodes, {"w": weight}, {"x": (1, 4, 6, 6)}, ["y1", "y6"])
    picture = np.random.default_rng(1).normal(size=(1, 4, 6, 6)).astype(np.float32)
    _, graph = rewrite(model, picture, cut_unseen_taps)
    assert [graph.weights[node.input[1]].shape[2:] for node in graph.nodes] == [(3, 3), (1, 1)]


def test_a_quantized_network_has_only_the_taps_that_see(make_conv):
    model = make_conv((1, 4, 8, 8), dilations=[8, 8], pads=[8] * 4)
    rng = np.random.default_rng(2)
    samples = [{"x": rng.normal(size=(1, 4, 8, 8)).astype(np.float32)} for _ in range(4)]
    result = quantize_model(model, samples, QuantizeSettings(target="openvino"))
    assert "cut the kernel of conv from 3x3 to the 1x1 that see values" in result.simplified
