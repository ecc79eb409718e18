"""What follows from single pixels has a range for all that pixels can be."""

import numpy as np
import pytest
from onnx import helper

from artifacts.pixel_levels import find_extremes
from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.pixel_extremes import find_pixelwise
from compress.quantize.settings import QuantizeSettings

SHAPE = (1, 3, 16, 16)
RNG = np.random.default_rng(0)


def draw_pictures(darkest, brightest, count=16, dtype=np.float32):
    """Pixels from 0 to 1 in steps of 1/255."""
    levels = RNG.integers(darkest, brightest + 1, (count, *SHAPE))
    return [{"x": (item / 255).astype(dtype)} for item in levels]


@pytest.fixture
def network(make_model):
    """A Focus stem: standardized pixels, every other of which stand side by side, and a Conv."""
    mean, std = (np.array(value, np.float32).reshape(1, 3, 1, 1) for value in MEAN_AND_STD)
    constants = {"mean": mean, "std": std, "w": RNG.normal(size=(8, 6, 3, 3)).astype(np.float32)}
    for name, value in {"begin": 0, "half": 8, "end": 16, "axis": 3}.items():
        constants[name] = np.array([value])
    nodes = [
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "std"], ["standardized"]),
        helper.make_node("Slice", ["standardized", "begin", "half", "axis"], ["left"]),
        helper.make_node("Slice", ["standardized", "half", "end", "axis"], ["right"]),
        helper.make_node("Concat", ["left", "right"], ["joined"], axis=1),
        helper.make_node("Conv", ["joined", "w"], ["seen"]),
        helper.make_node("Relu", ["seen"], ["y"]),
    ]
    return make_model(nodes, constants, {"x": SHAPE}, ["y"])


IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
MEAN_AND_STD = ([0.5, 0.45, 0.4], [0.2, 0.25, 0.2])


def test_black_that_no_calibration_picture_holds_is_not_clipped(network, run_model):
    settings = QuantizeSettings(target="openvino", symmetric=False)
    quantized = quantize_model(network, draw_pictures(60, 255), settings).model
    (dark,) = draw_pictures(0, 40, count=1)
    noise = run_model(quantized, dark)["y"] - run_model(network, dark)["y"]
    noise_db = 20 * np.log10(np.linalg.norm(noise) / np.linalg.norm(run_model(network, dark)["y"]))
    assert noise_db < -35


def test_arrays_that_were_standardized_reach_black_too(make_model, run_model):
    """By ImageNet's means: black is at -2.12, -2.04 and -1.80."""
    mean, std = (np.array(value).reshape(1, 3, 1, 1) for value in IMAGENET)
    pictures = [*draw_pictures(60, 255), *draw_pictures(0, 40, count=1)]
    *bright, dark = [{"x": ((one["x"] - mean) / std).astype(np.float32)} for one in pictures]
    weights = {"w": RNG.normal(size=(8, 3, 3, 3)).astype(np.float32)}
    model = make_model([helper.make_node("Conv", ["x", "w"], ["y"])], weights, {"x": SHAPE}, ["y"])
    settings = QuantizeSettings(target="openvino", symmetric=False)
    quantized = quantize_model(model, bright, settings).model
    noise = run_model(quantized, dark)["y"] - run_model(model, dark)["y"]
    noise_db = 20 * np.log10(np.linalg.norm(noise) / np.linalg.norm(run_model(model, dark)["y"]))
    assert noise_db < -35


def test_only_what_follows_from_single_pixels_is_widened(network):
    found = find_pixelwise(Graph(network), ["x"])
    assert {"x", "standardized", "joined"} <= found
    assert not {"seen", "y"} & found


@pytest.mark.parametrize("white", [1.0, 255.0])
def test_pixels_are_told_by_their_levels(white):
    cameras = RNG.integers(60, 256, (1, 6, *SHAPE[1:])).astype(np.float32) * np.float32(white / 255)
    state = np.tanh(RNG.normal(size=SHAPE)).astype(np.float32)
    black, bright = find_extremes([{"cameras": cameras, "state": state}])
    assert black["cameras"].shape == cameras.shape
    assert (black["cameras"] == 0).all()
    assert (bright["cameras"] == white).all()
    assert np.array_equal(black["state"], state)


@pytest.mark.parametrize(
    "values",
    [
        RNG.normal(size=SHAPE).astype(np.float32),
        RNG.random(SHAPE, np.float32),
        RNG.integers(0, 19, SHAPE).astype(np.float32),
        RNG.integers(0, 256, SHAPE).astype(np.uint8),
        RNG.integers(0, 256, (1, 6)).astype(np.float32) / 255,
        np.zeros(SHAPE, np.float32),
    ],
    ids=["standardized", "any share", "classes", "bytes", "pose", "nothing"],
)
def test_what_may_be_no_pixels_has_no_extremes(values):
    assert find_extremes([{"x": values}]) == ()
