"""Models, pictures and a way to run the commands as a user does."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """Runs `framefit ARGUMENTS` in this process."""
    from framefit.cli import main

    def run_here(*arguments: object) -> Finished:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run_here


@contextmanager
def own_weights(folder: Path, module: str, source: str) -> Iterator[Path]:
    """`weights.pt` of a user's own network in the current folder, built by `make` of a module."""
    import torch

    Path(f"{module}.py").write_text(source)
    sys.path.insert(0, str(folder))
    torch.manual_seed(0)
    torch.save(importlib.import_module(module).make().state_dict(), "weights.pt")
    yield Path("weights.pt")
    sys.path.remove(str(folder))
    del sys.modules[module]


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Starts `framefit ARGUMENTS` as a process of its own."""
    root = Path(__file__).parents[2]

    def start_process(*arguments: object, code: str = "") -> subprocess.Popen[str]:
        program = f"{code}\nimport sys\nfrom framefit.cli import main\nsys.exit(main())"
        return subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(root)},
        )

    return start_process


def make_network(channels: int = 8) -> onnx.ModelProto:
    """Two convolutions with BatchNormalization-free weights, [1, 3, 16, 24] in."""
    generator = np.random.default_rng(0)
    weights = {
        "w1": generator.normal(0, 0.3, (channels, 3, 3, 3)).astype(np.float32),
        "w2": generator.normal(0, 0.3, (4, channels, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w2"], ["logits"], name="second", pads=[1, 1, 1, 1]),
    ]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "network",
        [tensor("image", onnx.TensorProto.FLOAT, [1, 3, 16, 24])],
        [tensor("logits", onnx.TensorProto.FLOAT, [1, 4, 16, 24])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def with_vnni(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor of which `compress quantize` has nothing to say."""
    monkeypatch.setattr(
        "framefit.quantize_choices.read_flags", lambda: frozenset({"sse2", "avx_vnni"})
    )


@pytest.fixture
def network(folder: Path) -> Path:
    """`net.onnx` in the current folder."""
    path = folder / "net.onnx"
    onnx.save(make_network(), path)
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of four pictures of several sizes, beside the current folder."""
    path = tmp_path / "pictures"
    path.mkdir()
    generator = np.random.default_rng(1)
    for index, size in enumerate(((24, 16), (48, 32), (30, 30), (12, 40))):
        noise = generator.integers(0, 256, (4, 6, 3), np.uint8)
        assert cv2.imwrite(str(path / f"{index}.png"), cv2.resize(noise, size))
    return path
