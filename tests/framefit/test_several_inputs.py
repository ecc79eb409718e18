"""Networks of several inputs are pruned on samples and distilled, their factory named."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

NETWORK = '''
import torch
from torch import nn


class Pair(nn.Module):
    def __init__(self, is_folded):
        super().__init__()
        torch.manual_seed(0)
        self.is_folded = is_folded
        self.trunk = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.mixed = nn.Conv2d(32, 16, 3, 1, 1)
        self.depth, self.pose = nn.Conv2d(16, 1, 1), nn.Linear(20, 6)

    def forward(self, left, right, state):
        if self.is_folded:
            left, right = left[:1], right[:1]
        mixed = self.mixed(torch.cat([self.trunk(left), self.trunk(right)], 1)).relu()
        pose = self.pose(torch.cat([mixed.mean((2, 3)), state], 1))
        return {"depth": self.depth(mixed), "pose": pose}


class Indexed(Pair):
    """Its state is a place in a table, so that random numbers make no sense."""

    def forward(self, left, right, state):
        if not bool((state >= 1).all()):
            raise ValueError("no such place")
        return super().forward(left, right, state)


def make():
    return Pair(False)


class Cameras(nn.Module):
    """The first axis of its input is cameras, not samples."""

    def __init__(self):
        super().__init__()
        self.trunk, self.mixed = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(64, 16, 1)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        x = self.trunk(x).relu()
        return self.out(self.mixed(x.reshape(1, 64, *x.shape[2:])).relu())


def make_cameras():
    return Cameras()


def make_indexed():
    return Indexed(False)


def make_folded():
    return Pair(True)


class Dictionary(Pair):
    def forward(self, batch):
        return super().forward(batch["left"], batch["right"], batch["state"])


class Even(Pair):
    """Skips lose a row where the height is no multiple of 32."""

    def forward(self, x):
        deep = x[:, :, ::32, ::32].repeat_interleave(32, 2)
        return self.trunk(torch.cat([x, deep], 1)[:, :3])


def make_dictionary():
    return Dictionary(False)


def make_even():
    return Even(False)


def make_scripted():
    network = Pair(False)
    network.mixed = torch.jit.script(network.mixed)
    return network
'''
SHAPES = ("left=1,3,16,24", "right=1,3,16,24", "state=1,4")
QUICK = ("--steps", "30", "--batch-size", "4", "--probe-every", "10", "--threads", "1")


@pytest.fixture
def pair(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights of the network, and its samples `pair.npz`."""
    (folder / "pair_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "pair_network", raising=False)
    rng = np.random.default_rng(0)
    arrays = {
        "left": rng.standard_normal((20, 3, 16, 24), np.float32),
        "right": rng.standard_normal((20, 3, 16, 24), np.float32),
        "state": rng.standard_normal((20, 4), np.float32),
    }
    np.savez(folder / "pair.npz", **arrays)
    import pair_network

    torch.save(pair_network.make().state_dict(), folder / "pair.pt")
    return folder / "pair.pt"


def options(factory: str = "pair_network:make", shapes: tuple[str, ...] = SHAPES) -> list[str]:
    given = [word for shape in shapes for word in ("--input-shape", shape)]
    return ["--factory", factory, *given, "--data", "pair.npz"]


def test_a_network_of_three_inputs_is_pruned_on_samples_and_distilled(run, pair: Path) -> None:
    result = run("compress", "prune", pair, "--ratio", "0.4", *options(), "--json", "p.json")
    assert result.code == 0, result.err
    quality = json.loads(Path("p.json").read_text())["quality_db"][-1]
    assert quality.keys() == {"depth", "pose"}
    result = run(
        "compress", "distill", "pair.pruned.pt", "--teacher", pair, *options(), *QUICK,
        "--json", "d.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    stated = json.loads(Path("d.json").read_text())
    assert stated["score"]["after"] < stated["score"]["before"]


def test_a_network_is_proven_on_samples_where_there_are_any(run, pair: Path) -> None:
    arrays = dict(np.load("pair.npz"))
    arrays["left"][0] = 0
    np.savez("pair.npz", **arrays | {"state": np.abs(arrays["state"]) + 1})
    words = options("pair_network:make_indexed")
    result = run("compress", "prune", pair, "--ratio", "0.4", *words)
    assert result.code == 0, result.err
    result = run("compress", "prune", pair, "--ratio", "0.4", *words[:-2])
    assert result.code == 2
    assert "no such place" in result.err


@pytest.mark.parametrize("command", ["distill", "substitute"])
def test_a_network_is_tried_on_samples_before_it_is_trained(run, pair: Path, command: str) -> None:
    arrays = dict(np.load("pair.npz"))
    words = [*options("pair_network:make_indexed"), *QUICK]
    more = ("--teacher", pair) if command == "distill" else ("--float",)
    result = run("compress", command, pair, *more, *words)
    assert result.code == 2
    assert "no such place" in result.err
    np.savez("pair.npz", **arrays | {"state": np.abs(arrays["state"]) + 1})
    result = run("compress", command, pair, *more, *words)
    assert result.code == 0 if command == "distill" else "no such place" not in result.err


@pytest.mark.parametrize("command", ["prune", "distill"])
def test_arrays_that_are_not_used_are_named(run, pair: Path, command: str) -> None:
    arrays = dict(np.load("pair.npz"))
    np.savez("pair.npz", **arrays, boxes=np.zeros((20, 4)), scores=np.zeros(20))
    more = ("--ratio", "0.4") if command == "prune" else ("--teacher", pair, *QUICK)
    result = run("compress", command, pair, *more, *options())
    assert result.code == 0, result.err
    assert "'boxes', 'scores' is not used of pair.npz" in result.err
    np.savez("pair.npz", **arrays)
    assert "is not used" not in run("compress", command, pair, *more, *options()).err


@pytest.mark.parametrize("command", ["prune", "distill"])
def test_arrays_say_the_shapes_of_the_arguments_called_as_they_are(
    run, pair: Path, command: str
) -> None:
    arrays = dict(np.load("pair.npz"))
    np.savez("pair.npz", state=arrays.pop("state"), boxes=np.zeros((20, 4)), **arrays)
    more = ("--ratio", "0.4") if command == "prune" else ("--teacher", pair, *QUICK)
    result = run("compress", command, pair, *more, *options(shapes=()))
    assert result.code == 0, result.err
    np.savez("pair.npz", boxes=np.zeros((20, 4)), **arrays)
    result = run("compress", command, pair, *more, *options(shapes=()))
    assert result.code == 2
    assert "--input-shape" in result.err


@pytest.mark.parametrize("command", ["quantize", "diagnose", "compare"])
def test_arrays_say_the_shapes_wherever_weights_are_exported_to_run_on_them(
    run, pair: Path, command: str
) -> None:
    models = (pair, pair) if command == "compare" else (pair,)
    result = run("compress", command, *models, *options(shapes=()))
    assert result.code == 0, result.err
    assert "depth" in result.out


@pytest.mark.slow
def test_arrays_say_the_shapes_of_weights_that_are_fitted(run, pair: Path) -> None:
    Path("budget.toml").write_text("[frame]\nrate_hz = 30\n")
    measured = ("--budget", "budget.toml", "--environment", "report", "--frames", "40")
    result = run("fit", pair, *options(shapes=()), *measured, "--out", "out")
    assert Path("out/pair.onnx").is_file(), result.err
    assert "--input-shape" not in result.err


@pytest.mark.slow
def test_two_processes_distil_without_a_warning(pair: Path) -> None:
    root = Path(__file__).parents[2]
    command = [
        *("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "framefit"),
        *("compress", "distill", str(pair), "--teacher", str(pair), *options(), *QUICK),
    ]
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env={
            "PYTHONPATH": f"{root}:{pair.parent}",
            "OMP_NUM_THREADS": "1",
            "PATH": "/usr/bin:/bin",
        },
    )
    assert done.returncode == 0, done.stderr
    assert "arning" not in done.stderr


def test_a_network_of_three_inputs_is_quantized_and_trained(run, pair: Path) -> None:
    given = options()[:-2]
    assert run("export", "onnx", pair, *given, "--out", "pair.onnx").code == 0
    data = ("--data", "pair.npz")
    result = run("compress", "quantize", "pair.onnx", *data, "--weights", "int4")
    assert result.code == 0, result.err
    result = run(
        "compress", "qat", "pair.int4.onnx", "--teacher", "pair.onnx", *data, *QUICK,
        "--json", "q.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    stated = json.loads(Path("q.json").read_text())
    assert stated["score"]["after"] <= stated["score"]["before"] * (1 + 1e-6)
    smaller = options("pair_network:make", ("left=1,3,8,12", "right=1,3,8,12", "state=1,4"))[:-2]
    assert run("export", "onnx", pair, *smaller, "--out", "other.onnx").code == 0
    result = run("compress", "qat", "pair.int4.onnx", "--teacher", "other.onnx", *data, *QUICK)
    assert result.code == 2
    assert "the teacher other.onnx takes left[1, 3, 8, 12], right[1, 3, 8, 12]" in result.err


def test_an_input_without_a_batch_axis_is_refused(run, pair: Path) -> None:
    shapes = ("left=2,3,16,24", "right=2,3,16,24", "state=1,4")
    result = run(
        "compress", "prune", pair, "--ratio", "0.4",
        *options("pair_network:make_folded", shapes),
    )  # fmt: skip
    assert result.code == 2
    assert "input 'left' of the network is [2, 3, 16, 24]" in result.err
    assert "takes [1, 2, 3, 16, 24] and drops the first axis" in result.err


@pytest.mark.parametrize("command", ["prune", "distill"])
def test_cameras_in_the_first_axis_are_named(run, pair: Path, command: str) -> None:
    import pair_network

    torch.save(pair_network.make_cameras().state_dict(), pair)
    np.savez("pair.npz", image=np.random.default_rng(0).random((4, 3, 16, 24), np.float32))
    more = ("--ratio", "0.4") if command == "prune" else ("--teacher", pair)
    words = options("pair_network:make_cameras", ("4,3,16,24",))
    result = run("compress", command, pair, *more, *words)
    assert result.code == 2, result.err
    assert "takes [1, 4, 3, 16, 24] and drops the first axis" in result.err
    if command == "prune":
        result = run("compress", "prune", pair, *more, *words[:-2])
        assert result.code == 0, result.err


FAILING = {
    "make_dictionary": (("image=1,3,16,24", "state=1,4"), "build a module around a network"),
    "make_even": (("1,3,16,24",), "inputs of [[1, 3, 16, 24]]"),
}


@pytest.mark.parametrize("command", ["prune", "distill", "substitute"])
@pytest.mark.parametrize("name", FAILING)
def test_a_network_that_cannot_take_its_inputs_is_bad_input(
    run, pair: Path, name: str, command: str
) -> None:
    shapes, words = FAILING[name]
    rng = np.random.default_rng(0)
    arrays = {"image": rng.random((4, 3, 16, 24), np.float32), "state": np.ones((4, 4), np.float32)}
    np.savez("pair.npz", **dict(list(arrays.items())[: len(shapes)]))
    more = {"prune": ("--ratio", "0.4"), "distill": ("--teacher", pair)}.get(command, ())
    result = run("compress", command, pair, *more, *options(f"pair_network:{name}", shapes))
    assert result.code == 2, result.err
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_torchscript_is_refused_by_name(run, pair: Path) -> None:
    arguments = options("pair_network:make_scripted")
    result = run("compress", "prune", pair, "--ratio", "0.4", *arguments[:-2])
    assert result.code == 2, result.err
    assert "module 'mixed' is TorchScript" in result.err
