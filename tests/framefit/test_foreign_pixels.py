"""Arrays whose pixels are scaled otherwise than in training are warned of, others are not."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from artifacts.errors import InputError
from framefit.foreign_pixels import measure_first_layers

SHAPE = (1, 3, 24, 24)
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, *SHAPE[1:])).astype(np.float32)
MEAN, STD = (
    np.array(value, np.float32).reshape(1, 3, 1, 1)
    for value in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
)
IMAGENET = ("--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225")


def write_network(path: Path, divisor: float, loudness: float = 1.0) -> Path:
    """Pixels divided by a number that the file holds, and a Conv whose outputs vary by about 1."""
    weight = RNG.normal(0, loudness * 2 / 27**0.5, (8, 3, 3, 3)).astype(np.float32)
    constants = {"w": weight, "divisor": np.array(divisor, np.float32)}
    nodes = [
        helper.make_node("Div", ["x", "divisor"], ["scaled"]),
        helper.make_node("Conv", ["scaled", "w"], ["seen"], "first"),
        helper.make_node("Relu", ["seen"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 8, 22, 22))],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.parametrize(
    ("divisor", "loudness", "values", "options", "wanted"),
    [
        (1, 1, PIXELS, (), "'first' vary by"),
        (1, 1, PIXELS / 255, (), ""),
        (255, 1, PIXELS, (), ""),
        (1, 1 / 255, PIXELS, (), ""),
        (1, 1, PIXELS, ("--pixel-scale", "0.00392157"), "from 0 to 1: scale them"),
        (1, 1, PIXELS / 255, ("--pixel-scale", "0.00392157"), ""),
        (1, 1, PIXELS / 255, ("--pixel-scale", "1"), "from 0 to 255: scale them"),
        (1, 1, (PIXELS / 255 - MEAN) / STD, IMAGENET, ""),
        (1, 1, PIXELS, IMAGENET, "from -2.12 to 2.64: scale them"),
    ],
)
def test_pixels_that_the_network_was_not_trained_with(
    run, folder: Path, divisor, loudness, values, options, wanted
) -> None:
    network = write_network(folder / "net.onnx", divisor, loudness)
    np.savez(folder / "d.npz", x=values.astype(np.float32))
    result = run("compress", "quantize", network, "--data", "d.npz", *options)
    assert result.code == 0, result.err
    assert ("of d.npz has values from" in result.err) == bool(wanted)
    assert wanted in result.err


def test_other_inputs_are_no_pixels_of_the_spec(run, folder: Path) -> None:
    """A state of 8 channels has any values."""
    graph = onnx.load(write_network(folder / "net.onnx", 1))
    state = helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, (1, 8, 22, 22))
    graph.graph.input.append(state)
    graph.graph.node[-1].output[0] = "positive"
    graph.graph.node.append(helper.make_node("Add", ["positive", "h"], ["y"]))
    onnx.save(graph, folder / "net.onnx")
    np.savez(folder / "d.npz", x=PIXELS / 255, h=RNG.normal(0, 90, (6, 8, 22, 22)).astype("f4"))
    options = ("--data", "d.npz", "--pixel-scale", "0.00392157")
    result = run("compress", "quantize", "net.onnx", *options)
    assert result.code == 0, result.err
    assert "has values from" not in result.err


def test_a_batch_norm_belongs_to_the_first_layer(folder: Path) -> None:
    model = onnx.load(write_network(folder / "net.onnx", 1))
    sample = {"x": PIXELS[:1]}
    (loud,) = measure_first_layers(model, "x", sample).values()
    model.graph.node[1].output[0] = "raw"
    ones = {"gain": 1, "shift": 0, "mean": 0, "var": 1e4}
    for name, value in ones.items():
        array = np.full(8, value, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    norm = helper.make_node("BatchNormalization", ["raw", *ones], ["seen"], "norm")
    model.graph.node.insert(2, norm)
    (calm,) = measure_first_layers(model, "x", sample).values()
    assert calm == pytest.approx(loud / 100, rel=1e-3)


def test_a_first_layer_that_does_not_run_here_stops_nothing(run, folder: Path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise InputError("onnxruntime cannot run node 'first'")

    network = write_network(folder / "net.onnx", 1)
    np.savez(folder / "d.npz", x=PIXELS)
    monkeypatch.setattr("framefit.model_data.measure_first_layers", refuse)
    result = run("compress", "quantize", network, "--data", "d.npz")
    assert result.code == 0, result.err
    assert "has values from" not in result.err


@pytest.mark.parametrize("command", ["quantize", "diagnose"])
@pytest.mark.parametrize(("count", "is_warned"), [(1, True), (3, True), (4, False)])
def test_few_calibration_samples_are_warned_of(
    run, folder: Path, command, count, is_warned
) -> None:
    network = write_network(folder / "net.onnx", 1)
    np.savez(folder / "d.npz", x=PIXELS[:count] / 255)
    result = run("compress", command, network, "--data", "d.npz")
    assert result.code == 0, result.err
    assert (f"few calibration samples ({count})" in result.err) == is_warned


TRAINABLE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, divisor=1.0):
        super().__init__()
        self.divisor = divisor
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.last = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        return self.last(self.norm(self.first(x / self.divisor)).relu())

def make():
    return Net()

def scaled():
    return Net(255.0)
"""


@pytest.fixture
def trainable(folder: Path):
    """`weights.pt` of a network trained with pixels of 0 to 1, and `normed.pt` for 0 to 255."""
    torch = pytest.importorskip("torch")
    (folder / "pixel_networks.py").write_text(TRAINABLE)
    sys.path.insert(0, str(folder))
    import pixel_networks

    torch.manual_seed(0)
    module = pixel_networks.make()
    for name, scale in (("weights.pt", 1 / 255), ("normed.pt", 1)):
        for norm in (module.norm, module.norm.train()):
            norm.reset_running_stats()
            norm.momentum = None
        with torch.no_grad():
            module(torch.from_numpy(PIXELS) * scale)
        torch.save(module.state_dict(), name)
    yield folder
    sys.path.remove(str(folder))
    del sys.modules["pixel_networks"]


FACTORY = ("--factory", "pixel_networks:make", "--input-shape", "1,3,24,24")


@pytest.mark.parametrize(
    ("weights", "factory", "values", "options", "wanted"),
    [
        ("weights.pt", "make", PIXELS, (), "its first layer 'first' vary by"),
        ("weights.pt", "make", PIXELS / 255, (), ""),
        ("weights.pt", "scaled", PIXELS, (), ""),
        ("normed.pt", "make", PIXELS, (), ""),
        ("weights.pt", "make", PIXELS, ("--pixel-scale", "0.00392157"), "from 0 to 1: scale them"),
        ("weights.pt", "make", (PIXELS / 255 - MEAN) / STD, IMAGENET, ""),
    ],
)
def test_pruning_warns_of_pixels_unlike_those_in_training(
    run, trainable: Path, weights, factory, values, options, wanted
) -> None:
    np.savez("d.npz", x=values.astype(np.float32))
    network = ("--factory", f"pixel_networks:{factory}", *FACTORY[2:])
    goal = ("--ratio", 0.3, "--data", "d.npz")
    result = run("compress", "prune", weights, *goal, *network, *options)
    assert result.code == 0, result.err
    assert ("of d.npz has values from" in result.err) == bool(wanted)
    assert wanted in result.err


@pytest.mark.parametrize(("divisor", "is_warned"), [(1, True), (255, False)])
def test_training_warns_of_pixels_unlike_those_in_training(
    run, trainable: Path, divisor, is_warned
) -> None:
    np.savez("d.npz", x=(PIXELS / divisor).astype(np.float32))
    pair = ("weights.pt", "--teacher", "weights.pt", "--data", "d.npz", "--steps", 2)
    result = run("compress", "distill", *pair, *FACTORY)
    assert result.code == 0, result.err
    assert result.err.count("of d.npz has values from") == is_warned
    assert run("export", "onnx", "weights.pt", *FACTORY).code == 0
    assert run("compress", "quantize", "weights.onnx", "--data", "d.npz", "--no-timing").code == 0
    qat = ("weights.int8.onnx", "--teacher", "weights.onnx", "--data", "d.npz", "--steps", 2)
    result = run("compress", "qat", *qat)
    assert result.code == 0, result.err
    assert result.err.count("of d.npz has values from") == is_warned


def test_the_layer_that_an_input_reaches_is_measured() -> None:
    """The second input's, although the first's is called before; a shared one as it is called."""
    torch = pytest.importorskip("torch")
    from framefit.module_first_layer import measure_module_layers

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.near, self.far = (torch.nn.Conv2d(3, 5, 1) for _ in range(2))

        def forward(self, left, right):
            return self.near(left) + self.far(right)

    module = Two().eval()
    sample = {"left": PIXELS[:1] / 255, "right": PIXELS[:1]}
    (found,) = measure_module_layers(module, "right", sample).items()
    with torch.no_grad():
        wanted = module.far(torch.from_numpy(sample["right"])).std((0, 2, 3), correction=0).median()
    assert found == ("far", pytest.approx(float(wanted), rel=1e-4))
    assert list(measure_module_layers(module, "left", sample)) == ["near"]
    assert not any(part._forward_hooks for part in module.modules())


def test_layers_that_cannot_be_watched_stop_nothing() -> None:
    """One is given its input by a keyword, the other computes in bfloat16."""
    torch = pytest.importorskip("torch")
    from framefit.module_first_layer import measure_module_layers

    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.nn.Conv2d(3, 5, 1)
            self.narrow = torch.nn.Conv2d(5, 5, 1).bfloat16()

        def forward(self, x):
            return self.narrow(self.hidden(input=x).bfloat16()).float()

    (found,) = measure_module_layers(Odd().eval(), "x", {"x": PIXELS[:1]}).items()
    assert found[0] == "narrow"
    assert found[1] > 0


def test_a_spec_that_pruning_had_to_assume_is_no_statement(run, trainable: Path) -> None:
    """Standardized arrays are not warned of, and a later command may say how pixels were scaled."""
    np.savez("d.npz", x=((PIXELS / 255 - MEAN) / STD).astype(np.float32))
    goal = ("--ratio", 0.3, "--data", "d.npz")
    assert run("compress", "prune", "weights.pt", *goal, *FACTORY).code == 0
    pruned = ("weights.pruned.pt", *FACTORY[:2])
    for options in ((), IMAGENET):
        result = run("compress", "quantize", *pruned, "--data", "d.npz", "--no-timing", *options)
        assert result.code == 0, result.err
        assert "of d.npz has values from" not in result.err
