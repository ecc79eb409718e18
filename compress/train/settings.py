"""The settings of a training run."""

import math
from dataclasses import dataclass

from artifacts.errors import InputError

SMALLEST_RATE = 0.01
"""The learning rate at the end, as a share of the highest."""
WEIGHT_DECAY = 0.01
"""Where none is given."""
PRECISIONS = {"float32": "32-true", "bfloat16": "bf16-mixed"}
"""Name of each precision, and what Lightning Fabric calls it."""
STRATEGIES = ("ddp", "fsdp")


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """How to train.

    Attributes:
        steps: optimizer steps.
        batch_size: samples per optimizer step, over all processes.
        accumulate: parts that a process splits its share of a batch into, to save memory.
        learning_rate: the highest, after the warm-up; None finds one, see `rate_trial`.
        weight_decay: of weights with two axes or more; biases and norms have none. None takes what
            suits the lesson: `WEIGHT_DECAY`, and none at all for the integers of QAT.
        warmup_share: share of the steps with a rising learning rate.
        gradient_norm: longest gradient; longer ones are scaled down.
        average_decay: of the moving average of the weights, which is what is kept.
        precision: a key of `PRECISIONS`; bfloat16 is autocast, the weights stay float32.
        is_compiled: runs the lesson through torch.compile.
        recomputes_activations: keeps fewer activations and computes them again going backwards.
        probe_every: steps between two quality probes.
        patience: probes without a better one after which the run ends; 0 never ends it.
        save_every: steps between two saved states.
        flip_probability: share of the samples that is mirrored; only for samples without labels.
        seed: of the order of the samples, and of whatever the network draws.
        workers: processes that prepare samples beside each training process; 0 for none.
        threads: of torch in each process on the CPU; 0 leaves torch's own choice.
        strategy: how several processes share the work: ddp or fsdp.
        device: "auto" takes a GPU where there is one; "cpu".
    """

    steps: int = 500
    batch_size: int = 8
    accumulate: int = 1
    learning_rate: float | None = None
    weight_decay: float | None = None
    warmup_share: float = 0.05
    gradient_norm: float = 10.0
    average_decay: float = 0.99
    precision: str = "float32"
    is_compiled: bool = False
    recomputes_activations: bool = False
    probe_every: int = 50
    patience: int = 0
    save_every: int = 50
    flip_probability: float = 0.0
    seed: int = 0
    workers: int = 0
    threads: int = 0
    strategy: str = "ddp"
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "probe_every", "save_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "1 or more")
        for name in ("patience", "workers", "threads", "seed", "weight_decay"):
            if (getattr(self, name) or 0) < 0:
                raise InputError(f"{name} is {getattr(self, name)}", "0 or more")
        for name in ("learning_rate", "gradient_norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}", "a number above 0")
        for name in ("warmup_share", "flip_probability", "average_decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}", "a share from 0 to 1")
        self._require_one_of("precision", tuple(PRECISIONS))
        self._require_one_of("strategy", STRATEGIES)
        self._require_one_of("device", ("auto", "cpu"))

    def _require_one_of(self, name: str, values: tuple[str, ...]) -> None:
        if getattr(self, name) not in values:
            raise InputError(f"{name} is '{getattr(self, name)}'", f"one of {', '.join(values)}")

    def rate_share_at(self, step: int) -> float:
        """Returns the learning rate beside the highest: a linear warm-up, then half a cosine.

        `step` counts from 0.
        """
        share = (step + 1) / self.steps
        if share < self.warmup_share:
            return max(share / self.warmup_share, SMALLEST_RATE)
        passed = (share - self.warmup_share) / max(1 - self.warmup_share, 1e-9)
        cosine = (1 + math.cos(math.pi * min(passed, 1.0))) / 2
        return SMALLEST_RATE + (1 - SMALLEST_RATE) * cosine
