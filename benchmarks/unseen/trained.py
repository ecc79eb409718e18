"""Trained networks as cases of `benchmarks.peers`, kept by the digest of what made them."""

import hashlib
import inspect
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from artifacts.atomic import atomic_path
from artifacts.onnx_file import load_onnx, save_onnx
from benchmarks.fresh_networks import losses, parts, scenes, training
from benchmarks.peers.cases import Case, CaseFiles
from benchmarks.unseen.networks import NETWORKS

OUT = Path("out/unseen")
SCENES, TRAINING_SEED = 300, 81
STEPS = 200
HEIGHT, WIDTH = 192, 320
"""What is quantized and judged; training sees smaller pictures of the same scenes."""
ROUNDS = 150


def list_cases(weights: Path, steps: int = STEPS) -> list[Case]:
    """Returns a case per network; its weights are trained where the folder lacks its digest."""
    return [
        Case(
            name=name,
            split=f"{scenes.CALIBRATION} rendered scenes calibrate and {scenes.HELD_OUT} others "
            "judge, a few real roads in each",
            write=partial(_write, name, weights, steps),
            rounds=ROUNDS,
        )
        for name in NETWORKS
    ]


def digest(name: str, steps: int) -> str:
    """Returns what names a network's weights: its source, its teachers' and how long."""
    kept = hashlib.sha256(f"{name} {steps} {SCENES} {TRAINING_SEED}".encode())
    for module in (inspect.getmodule(NETWORKS[name]), losses, parts, scenes, training):
        kept.update(inspect.getsource(module).encode())  # type: ignore[arg-type]
    return kept.hexdigest()[:12]


def train_weights(name: str, folder: Path, steps: int) -> Path:
    """Returns the file of a network's weights, made where it is missing."""
    path = folder / f"{name}-{digest(name, steps)}.pt"
    if not path.exists():
        torch.manual_seed(list(NETWORKS).index(name))
        network = NETWORKS[name]()
        pictures, targets = _render()
        training.train(network, pictures, targets, steps)
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as target:
            torch.save(network.state_dict(), target)
    return path


@cache
def _render() -> tuple[Tensor, scenes.Targets]:
    return scenes.render_training(SCENES, TRAINING_SEED)


def _write(name: str, weights: Path, steps: int, files: CaseFiles) -> None:
    network = NETWORKS[name]()
    state = torch.load(train_weights(name, weights, steps), weights_only=True)
    network.load_state_dict(state)
    training.export_trained(network, files.model, HEIGHT, WIDTH)
    save_onnx(load_onnx(files.model), files.model, metadata={})
    for path, read in (
        (files.calibration, scenes.read_calibration),
        (files.held_out, scenes.read_held_out),
    ):
        np.savez(path, image=read(HEIGHT, WIDTH).numpy())
