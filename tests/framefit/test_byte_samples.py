"""Arrays of bytes for networks that scale pixels themselves, and for those that do not."""

import importlib
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

NETWORK = """
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16)
        self.last = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        x = x.permute(0, 3, 1, 2).float() / 255
        return self.last(self.norm(self.first(x)).relu())


def make():
    return Scaled()


def plain():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 2, 1))
"""
SHAPES = {"make": (16, 24, 3), "plain": (3, 16, 24)}
QUICK = ("--steps", 2, "--batch-size", 2, "--probe-every", 1)


def open_case(folder: Path, name: str) -> tuple[object, ...]:
    """Writes weights and pictures in bytes; returns the options that name them."""
    folder.joinpath("byte_factory.py").write_text(NETWORK)
    module = importlib.import_module("byte_factory")
    torch.save(getattr(module, name)().state_dict(), folder / "n.pt")
    pixels = np.random.default_rng(0).integers(0, 256, (6, *SHAPES[name]), np.uint8)
    np.savez(folder / "d.npz", x=pixels)
    shape = ",".join(map(str, (1, *SHAPES[name])))
    factory = ("--factory", f"byte_factory:{name}", "--input-shape", shape)
    return (*factory, "--data", "d.npz")


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("prune", ("--ratio", 0.3, "--round-to", 1, "--fewest", 2)),
        ("distill", ("--teacher", "n.pt", *QUICK)),
    ],
)
def test_a_network_that_takes_bytes_gets_their_numbers(
    run, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, more: tuple[object, ...]
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    options = open_case(folder, "make")
    result = run("compress", command, "n.pt", *options, *more, "--out", "o.pt")
    assert result.code == 0, result.err
    assert "'x' of d.npz: bytes" in result.err


def test_a_layer_takes_no_bytes(run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    options = open_case(folder, "plain")
    result = run("compress", "prune", "n.pt", *options, "--ratio", 0.3)
    assert result.code == 2
    assert "raw pixels" in result.err


def test_bytes_go_the_whole_way(run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    options = open_case(folder, "make")
    for command in (
        ("compress", "quantize", "n.pt", *options, "--out", "q.onnx"),
        ("framefit", "export", "onnx", "n.pt", *options[:4], "--out", "n.onnx"),
        ("compress", "quantize", "n.onnx", "--data", "d.npz", "--out", "o.onnx"),
        ("compress", "compare", "n.onnx", "q.onnx", "--data", "d.npz"),
        ("compress", "qat", "q.onnx", "--teacher", "n.onnx", "--data", "d.npz", *QUICK),
        ("engines", "run", "q.onnx", "--data", "d.npz"),
    ):
        result = run(*(command[1:] if command[0] == "framefit" else command))
        assert result.code == 0, (command, result.err)
        if command[1] == "quantize":
            assert "'x' of d.npz: bytes" in result.err


def test_a_layer_takes_no_bytes_when_it_is_quantized(
    run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    options = open_case(folder, "plain")
    result = run("compress", "quantize", "n.pt", *options)
    assert result.code == 2
    assert "raw pixels" in result.err
