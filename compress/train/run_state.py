"""The state of a training run on disk, from which it goes on as if it had never stopped."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

from artifacts.checkpoint import load_run_state
from artifacts.errors import InputError
from compress.train.average import MovingAverage
from compress.train.rate_choice import RateChoice, restore_choice
from compress.train.settings import TrainerSettings

FORMAT = "framefit-training/1"
FREE_SETTINGS = ("workers", "threads", "save_every", "device", "strategy", "is_compiled")
"""Settings that a resumed run may change: the steps stay the same, up to rounding."""


@dataclass(kw_only=True)
class Standing:
    """How far a run is.

    Attributes:
        step: steps done.
        best_step: the step of the best probe; 0 is the network as it came.
        best_score: of that probe; lower is better, None before the first.
        best: the averaged weights at that step.
        scores: (step, score) of each probe.
        rate: the learning rate; None before it is chosen.
    """

    step: int = 0
    best_step: int = 0
    best_score: float | None = None
    best: dict[str, Tensor] = field(default_factory=dict)
    scores: list[tuple[int, float]] = field(default_factory=list)
    rate: RateChoice | None = None

    def note_score(self, score: float, weights: dict[str, Tensor]) -> None:
        """Adds a probe at the current step; the weights are kept if there is no better one."""
        self.scores.append((self.step, score))
        if self.best_score is None or score < self.best_score:
            self.best_step, self.best_score, self.best = self.step, score, weights

    def probes_since_best(self) -> int:
        """Returns the number of probes after the best one."""
        return sum(step > self.best_step for step, _ in self.scores)


def capture_state(
    lesson: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: MovingAverage,
    standing: Standing,
    identity: str,
) -> dict[str, Any]:
    """Returns everything that the rest of a run depends on; every process has to call it."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, optimizer_state = get_state_dict(lesson, optimizer, options=options)
    return {
        "format": FORMAT,
        "identity": identity,
        "lesson": weights,
        "optimizer": optimizer_state,
        "average": average.gather(),
        "standing": asdict(standing),
    }


def restore_state(
    content: dict[str, Any],
    lesson: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: MovingAverage,
) -> Standing:
    """Takes over what `capture_state` returned; every process has to call it.

    A weight without a gradient so far (a head that is not compared) has no optimizer state. What
    `set_state_dict` makes for it is taken away again, so that it would begin where it stands. Names
    and shapes were compared by `identify_run`.
    """
    known = content["optimizer"]["state"]
    missing: dict[str, dict[str, Any]] = {
        name: {} for name, _ in lesson.named_parameters() if name not in known
    }
    set_state_dict(
        lesson,
        optimizer,
        model_state_dict=content["lesson"],
        # Up to torch 2.9 it asks for the state of every weight.
        optim_state_dict={**content["optimizer"], "state": {**known, **missing}},
        options=StateDictOptions(full_state_dict=True, strict=False),
    )
    for name, weight in lesson.named_parameters():
        if name in missing:
            optimizer.state.pop(weight, None)
    average.restore(content["average"])
    values = content["standing"]
    scores = [(step, score) for step, score in values["scores"]]
    return Standing(**{**values, "scores": scores, "rate": restore_choice(values.get("rate"))})


def load_state(path: Path, identity: str) -> dict[str, Any]:
    """Reads a state.

    Raises:
        InputError: the file is damaged, or the state of another run.
    """
    content = load_run_state(path)
    if content.get("format") != FORMAT:
        raise InputError(f"{path} is not a state of this trainer", FORMAT, "delete it")
    if content["identity"] != identity:
        raise InputError(
            f"{path} is the state of a training run with another network, data or settings",
            "the same ones",
            "delete it to start anew, or name another output",
        )
    return content


def identify_run(
    lesson: nn.Module, settings: TrainerSettings, samples: int, content: str = ""
) -> str:
    """Returns a digest of what must not change when a run is resumed.

    Args:
        lesson: names and shapes of its weights count, their values do not.
        settings: but for `FREE_SETTINGS`.
        samples: how many there are.
        content: digest of whatever else the run depends on, see `digest_values`.
    """
    fixed = {name: value for name, value in asdict(settings).items() if name not in FREE_SETTINGS}
    shapes = {name: list(value.shape) for name, value in lesson.state_dict().items()}
    text = json.dumps([fixed, shapes, samples, content], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_values(*groups: Iterable[tuple[str, Tensor]]) -> str:
    """Returns a digest of named tensors: their names, types, shapes and every bit."""
    digest = hashlib.sha256()
    for group in groups:
        for name, value in group:
            digest.update(f"{name} {value.dtype} {list(value.shape)};".encode())
            # A single number may have a stride of 0, with which it cannot be viewed as bytes.
            flat = value.detach().cpu().flatten().clone(memory_format=torch.contiguous_format)
            digest.update(flat.view(torch.uint8).numpy().tobytes())
        digest.update(b"|")
    return digest.hexdigest()
