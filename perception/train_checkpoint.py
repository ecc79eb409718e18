"""From training data to a checkpoint, and from a checkpoint to its figures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from artifacts.checkpoint import Checkpoint, build_module, load_checkpoint, save_checkpoint
from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from perception.batches import SceneSource
from perception.evaluate import evaluate_heads
from perception.network import PerceptionNetwork
from perception.train import TrainState, TrainStep, train
from perception.train_settings import TrainSettings
from perception.training_data import TrainingData

INPUT_SPEC = InputSpec(mean=(0.45, 0.45, 0.45), std=(0.225, 0.225, 0.225))
"""How the networks that are trained here take their pixels."""


def train_checkpoint(
    out: Path,
    config: dict[str, Any],
    settings: TrainSettings,
    data: TrainingData,
    *,
    start: Path | None = None,
    report: Callable[[TrainStep], None] | None = None,
) -> TrainState:
    """Trains a network and keeps its checkpoint at `out`.

    Args:
        out: the checkpoint, written anew each time the state is saved; the state to resume from
            is beside it, with the suffix ".state".
        config: of the network, see `perception.network.build`; without heads it gets those that
            the data have labels for.
        settings: how to train.
        data: what to train with.
        start: a checkpoint of the same network, at any input size, whose weights to start from.
        report: called after each step.

    Raises:
        InputError: a head without labels, a configuration that cannot be built, or training
            diverged.
    """
    heads = config.get("heads", {name: {} for name in data.heads})
    for name in heads:
        if name not in data.heads:
            raise InputError(
                f"the data have no labels for the head '{name}'",
                f"heads among {', '.join(data.heads)}",
            )
    return train(
        {**config, "heads": heads},
        data.training,
        INPUT_SPEC,
        settings,
        start=load_checkpoint(start).state_dict if start is not None else None,
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
    scenes: SceneSource,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, dict[str, float]]:
    """Returns all figures of a network of this package, by head.

    Args:
        path: a framefit/1 checkpoint.
        scenes: makes the scenes to measure on, at the network's input size.
        progress: see `perception.evaluate.evaluate_outputs`.

    Raises:
        InputError: the checkpoint is damaged or holds another kind of network.
    """
    checkpoint = load_checkpoint(path)
    network = build_module(checkpoint, label=f"the weights of {path}")
    if not isinstance(network, PerceptionNetwork):
        raise InputError(f"{path} holds a {type(network).__name__}", "a PerceptionNetwork")

    def predict(image: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        with torch.inference_mode():
            outputs = network(torch.from_numpy(image))
        return {name: output.numpy() for name, output in outputs.items()}

    return evaluate_heads(
        predict,
        scenes(network.config["height"], network.config["width"]),
        checkpoint.input_spec,
        network.heads_metadata,
        progress=progress,
    )
