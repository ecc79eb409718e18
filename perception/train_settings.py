"""How to train: every number that a training run depends on."""

import math
from dataclasses import dataclass

from artifacts.errors import InputError

SMALLEST_RATE = 0.01
"""The learning rate at the end, as a share of the highest."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How to train.

    Attributes:
        minutes: wall-clock time to train for; every schedule follows the share that has passed.
        steps: steps to train for; where given it replaces `minutes` and makes a run repeatable.
        seed: of the weights and of the order of the scenes.
        batch_size: scenes per step at half the resolution; half as many at the full one.
        learning_rate: the highest, after the warm-up.
        weight_decay: of convolution weights; norms and biases have none.
        warmup_share: share of the training with a rising learning rate.
        half_share: share of the training, from its start, at half the resolution.
        average_decay: of the moving average of the weights, which is what is saved.
        gradient_norm: longest gradient; longer ones are scaled down.
        flip_probability: share of the scenes that is mirrored.
        save_minutes: minutes between two saved states.
        replicas: processes that share the work of a step; on a busy machine better than threads.
        threads: of torch in each replica.
        workers: processes (0 or 1) that prepare scenes beside each replica.
    """

    minutes: float = 50.0
    steps: int | None = None
    seed: int = 0
    batch_size: int = 8
    learning_rate: float = 2e-3
    weight_decay: float = 0.02
    warmup_share: float = 0.03
    half_share: float = 0.4
    average_decay: float = 0.997
    gradient_norm: float = 10.0
    flip_probability: float = 0.0
    save_minutes: float = 3.0
    replicas: int = 2
    threads: int = 1
    workers: int = 1

    def __post_init__(self) -> None:
        if self.minutes <= 0 or (self.steps is not None and self.steps < 1):
            raise InputError(f"minutes {self.minutes}, steps {self.steps}", "numbers above 0")
        if self.batch_size < 1 or self.learning_rate <= 0 or min(self.threads, self.replicas) < 1:
            raise InputError(
                f"batch size {self.batch_size}, learning rate {self.learning_rate}, "
                f"threads {self.threads}, replicas {self.replicas}",
                "numbers above 0",
            )
        for name in ("warmup_share", "half_share", "flip_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}", "a share from 0 to 1")

    def learning_rate_at(self, share: float) -> float:
        """Returns a linear warm-up followed by half a cosine, at a share of the training, 0..1."""
        if share < self.warmup_share:
            return self.learning_rate * max(share / self.warmup_share, SMALLEST_RATE)
        passed = (share - self.warmup_share) / max(1 - self.warmup_share, 1e-9)
        cosine = (1 + math.cos(math.pi * min(passed, 1.0))) / 2
        return self.learning_rate * (SMALLEST_RATE + (1 - SMALLEST_RATE) * cosine)

    def share_at(self, step: int, elapsed_s: float) -> float:
        """Returns the share of the training that has passed after these steps and seconds."""
        return elapsed_s / (self.minutes * 60) if self.steps is None else step / self.steps
