"""The settings of quantization-aware training."""

import math
from dataclasses import dataclass

from artifacts.errors import InputError

LEARNING_RATE = 0.005
"""Of the trainer, where none is given: in steps of the integer grid, so it fits any network."""
AVERAGE_DECAY = 0.98
"""Of the trainer, where no settings of it are given."""


@dataclass(frozen=True, kw_only=True)
class QatSettings:
    """What is learned, and how fast beside the trainer's learning rate.

    The learning rate counts in steps of the integer grid for weights: 0.01 moves a weight by at
    most about a hundredth of its step, whatever the layer and the number of bits.

    Attributes:
        scale_rate: of the logarithm of a scale, beside a weight's.
        bias_rate: of a bias in units of the biases' size, beside a weight's.
        learns_weights: whether weights move to other integers.
        learns_activations: whether the scales of activations are learned.
        label_weight: see `DistillSettings`.
    """

    scale_rate: float = 0.1
    bias_rate: float = 0.1
    learns_weights: bool = True
    learns_activations: bool = True
    label_weight: float = 1.0

    def __post_init__(self) -> None:
        for name in ("scale_rate", "bias_rate", "label_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}", "0 or more")
