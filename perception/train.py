"""Trains a network on labelled scenes within a given number of minutes or steps."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from artifacts.checkpoint import load_run_state
from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from artifacts.state_dict import fit_weights
from artifacts.torch_file import write_torch
from perception.batches import Batch, SceneSource, SceneStream, open_batches
from perception.heads.head import Head
from perception.network import PerceptionNetwork, build
from perception.replicas import Replica, open_replicas
from perception.train_settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class TrainStep:
    """What happened in one step.

    Attributes:
        step: counted from 1.
        elapsed_s: training time so far, earlier parts of a resumed run included.
        share: of the whole training that has passed, 0..1.
        scale: resolution relative to the network's input size.
        losses: each term of the loss.
        gradient_norm: before it was limited.
    """

    step: int
    elapsed_s: float
    share: float
    scale: float
    losses: dict[str, float]
    gradient_norm: float


@dataclass(kw_only=True)
class TrainState:
    """A training run between two steps.

    Attributes:
        network: the weights that learn.
        average: the moving average of `network`.
        optimizer: AdamW over `network`.
        step: steps done.
        scenes_seen: scenes used so far.
        elapsed_s: training time so far.
    """

    network: PerceptionNetwork
    average: PerceptionNetwork
    optimizer: torch.optim.Optimizer
    step: int = 0
    scenes_seen: int = 0
    elapsed_s: float = 0.0


def train(
    config: dict[str, Any],
    scenes: SceneSource,
    spec: InputSpec,
    settings: TrainSettings,
    *,
    start: Mapping[str, torch.Tensor] | None = None,
    state_path: Path | None = None,
    report: Callable[[TrainStep], None] | None = None,
    on_save: Callable[[TrainState], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TrainState:
    """Trains a network, or continues the run whose state is at `state_path`.

    Args:
        config: of the network, see `perception.network.build`.
        scenes: makes the labelled scenes at a given size.
        spec: how pixels become inputs.
        settings: how to train.
        start: weights to start from, of the same network at any input size; None for random ones.
        state_path: where the state is kept to resume from; None keeps none.
        report: called after each step.
        on_save: called each time the state is saved, and at the end.
        clock: seconds that only grow.

    Returns:
        the final state; `average` is the trained network.

    Raises:
        InputError: the loss is no longer finite (the last saved state stays as it was), or the
            state at `state_path` belongs to another network or other settings.
    """
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    state = _new_state(config, settings)
    if start is not None:
        for network in (state.network, state.average):
            fit_weights(network, start)
        state.network.train()
    if state_path is not None and state_path.exists():
        _restore(state, state_path, settings)
    saver = _Saver(state_path, settings, on_save, report)
    weights = sum(p.numel() for p in state.network.parameters())

    def follow(replica: Replica) -> None:
        _loop(state, scenes, spec, settings, replica, clock, None)

    with open_replicas(settings.replicas, weights, follow) as replica:
        _loop(state, scenes, spec, settings, replica, clock, saver)
    saver.save(state)
    return state


def _loop(
    state: TrainState,
    scenes: SceneSource,
    spec: InputSpec,
    settings: TrainSettings,
    replica: Replica,
    clock: Callable[[], float],
    saver: "_Saver | None",
) -> None:
    """Trains until the time or the steps are over; the same in each replica."""
    began = clock() - state.elapsed_s
    batches: Iterator[Batch] = iter(())
    scale = 0.0
    while (share := replica.agree(settings.share_at(state.step, state.elapsed_s))) < 1:
        wanted = 0.5 if share < settings.half_share else 1.0
        if wanted != scale:
            scale = wanted
            batches = _open(state, scenes, spec, settings, scale, replica)
        rate = settings.learning_rate_at(share)
        losses, norm = _step(state, next(batches), rate, settings, replica)
        state.elapsed_s = clock() - began
        if saver is not None:
            step = TrainStep(
                step=state.step,
                elapsed_s=state.elapsed_s,
                share=settings.share_at(state.step, state.elapsed_s),
                scale=scale,
                losses=losses,
                gradient_norm=norm,
            )
            saver.after_step(state, step)


def _new_state(config: dict[str, Any], settings: TrainSettings) -> TrainState:
    network = build(config).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    decayed = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        fused=True,
    )
    average = deepcopy(network).eval().requires_grad_(False)
    return TrainState(network=network.train(), average=average, optimizer=optimizer)


def _open(
    state: TrainState,
    scenes: SceneSource,
    spec: InputSpec,
    settings: TrainSettings,
    scale: float,
    replica: Replica,
) -> Iterator[Batch]:
    height = round(state.network.config["height"] * scale)
    width = round(state.network.config["width"] * scale)
    stream = SceneStream(
        scenes(height, width),
        [head.encoder for head in _heads(state.network)],
        spec,
        scale=scale,
        seed=settings.seed,
        start=state.scenes_seen + replica.rank,
        step=replica.count,
        flip_probability=settings.flip_probability,
    )
    batch_size = settings.batch_size if scale < 1 else settings.batch_size // 2
    return open_batches(stream, max(1, batch_size // replica.count), settings.workers)


def _heads(network: PerceptionNetwork) -> list[Head]:
    return [head for head in network.heads.values() if isinstance(head, Head)]


def _step(
    state: TrainState,
    batch: Batch,
    learning_rate: float,
    settings: TrainSettings,
    replica: Replica,
) -> tuple[dict[str, float], float]:
    """Does one step; returns the terms of the loss and the gradient's norm."""
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate
    outputs = state.network(batch.images)
    terms = {}
    for head in _heads(state.network):
        terms.update(head.loss(outputs, batch.targets))
    total = torch.stack(list(terms.values())).sum()
    state.optimizer.zero_grad(set_to_none=True)
    total.backward()
    replica.average_gradients(list(state.network.parameters()))
    norm = float(nn.utils.clip_grad_norm_(state.network.parameters(), settings.gradient_norm))
    losses = {name: float(term.detach()) for name, term in terms.items()}
    if not math.isfinite(float(total.detach())) or not math.isfinite(norm):
        raise InputError(
            f"training diverged at step {state.step + 1}: losses {losses}, gradient norm {norm}",
            "finite numbers",
            "lower the learning rate; the last saved checkpoint is kept",
        )
    state.optimizer.step()
    state.step += 1
    state.scenes_seen += len(batch.images) * replica.count
    _update_average(state, settings.average_decay)
    return losses, norm


@torch.no_grad()
def _update_average(state: TrainState, decay: float) -> None:
    """Moves the averaged weights and BatchNorm statistics towards the learning ones."""
    decay = min(decay, (1 + state.step) / (10 + state.step))
    new = state.network.state_dict()
    for name, value in state.average.state_dict().items():
        if value.is_floating_point():
            value.lerp_(new[name], 1 - decay)
        else:
            value.copy_(new[name])


class _Saver:
    """Reports each step, and keeps the state every few minutes."""

    def __init__(
        self,
        path: Path | None,
        settings: TrainSettings,
        on_save: Callable[[TrainState], None] | None,
        report: Callable[[TrainStep], None] | None,
    ) -> None:
        self.path = path
        self.settings = settings
        self.on_save = on_save
        self.report = report
        self.saved_s: float | None = None

    def after_step(self, state: TrainState, step: TrainStep) -> None:
        if self.report is not None:
            self.report(step)
        if self.saved_s is None:
            self.saved_s = step.elapsed_s
        if step.elapsed_s - self.saved_s >= self.settings.save_minutes * 60:
            self.save(state)

    def save(self, state: TrainState) -> None:
        self.saved_s = state.elapsed_s
        if self.path is not None:
            content = {
                "config": state.network.config,
                "settings": asdict(self.settings),
                "network": state.network.state_dict(),
                "average": state.average.state_dict(),
                "optimizer": state.optimizer.state_dict(),
                "step": state.step,
                "scenes_seen": state.scenes_seen,
                "elapsed_s": state.elapsed_s,
            }
            write_torch(self.path, content)
        if self.on_save is not None:
            self.on_save(state)


def _restore(state: TrainState, path: Path, settings: TrainSettings) -> None:
    content = load_run_state(path)
    if "config" not in content:
        raise InputError(f"{path} is the state of another kind of training", fix="delete it")
    if content["config"] != state.network.config or content["settings"]["seed"] != settings.seed:
        raise InputError(
            f"{path} is the state of a training run with another network or seed",
            "the same configuration and seed",
            "delete it to start anew, or name another output",
        )
    state.network.load_state_dict(content["network"])
    state.average.load_state_dict(content["average"])
    state.optimizer.load_state_dict(content["optimizer"])
    state.step = content["step"]
    state.scenes_seen = content["scenes_seen"]
    state.elapsed_s = content["elapsed_s"]
