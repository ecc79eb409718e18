"""The training of the shipped network: procedural road scenes in, a checkpoint out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from artifacts.checkpoint import Checkpoint, build_module, load_checkpoint, save_checkpoint
from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from perception.evaluate import evaluate_heads
from perception.network import PerceptionNetwork
from perception.scene.dataset import SceneDataset
from perception.train import TrainSettings, TrainState, TrainStep, train

INPUT_SPEC = InputSpec(mean=(0.45, 0.45, 0.45), std=(0.225, 0.225, 0.225))
HELD_OUT_SEED = 90_001
"""Seed of the scenes that figures are measured on; no training may use it."""


def train_road(
    out: Path,
    config: dict[str, Any],
    settings: TrainSettings,
    *,
    scenes: int,
    report: Callable[[TrainStep], None] | None = None,
) -> TrainState:
    """Trains a network on road scenes and keeps its checkpoint at `out`.

    Args:
        out: the checkpoint, written anew each time the state is saved; the state to resume from
            is beside it, with the suffix ".state".
        config: of the network, see `perception.network.build`.
        settings: how to train; its seed is the scenes' seed as well.
        scenes: number of different scenes.
        report: called after each step.

    Raises:
        InputError: the seed is that of the held-out scenes, or training diverged.
    """
    if settings.seed == HELD_OUT_SEED:
        raise InputError(f"the seed {settings.seed} is that of the held-out scenes", "another")
    return train(
        config,
        lambda height, width: SceneDataset(scenes, settings.seed, height, width),
        INPUT_SPEC,
        settings,
        state_path=out.with_suffix(".state"),
        report=report,
        on_save=lambda state: save_network(out, state.average, INPUT_SPEC),
    )


def save_network(path: Path, network: PerceptionNetwork, spec: InputSpec) -> None:
    """Writes a network as a framefit/1 checkpoint, atomically."""
    checkpoint = Checkpoint(
        builder="perception.network:build",
        config=network.config,
        input_spec=spec,
        state_dict=network.state_dict(),
    )
    save_checkpoint(path, checkpoint)


def evaluate_checkpoint(
    path: Path,
    *,
    count: int,
    seed: int = HELD_OUT_SEED,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, dict[str, float]]:
    """Returns all figures of a network of this package on held-out road scenes, by head.

    Args:
        path: a framefit/1 checkpoint.
        count: number of scenes.
        seed: of the scenes.
        progress: see `perception.evaluate.evaluate_outputs`.

    Raises:
        InputError: the checkpoint is damaged or holds another kind of network.
    """
    checkpoint = load_checkpoint(path)
    network = build_module(checkpoint)
    if not isinstance(network, PerceptionNetwork):
        raise InputError(f"{path} holds a {type(network).__name__}", "a PerceptionNetwork")

    def predict(image: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        with torch.inference_mode():
            outputs = network(torch.from_numpy(image))
        return {name: output.numpy() for name, output in outputs.items()}

    scenes = SceneDataset(count, seed, network.config["height"], network.config["width"])
    return evaluate_heads(
        predict, scenes, checkpoint.input_spec, network.heads_metadata, progress=progress
    )
