"""The settings of a distillation."""

import math
from dataclasses import dataclass

from artifacts.errors import InputError

BATCH_NORM = ("auto", "hold", "train")


@dataclass(frozen=True, kw_only=True)
class DistillSettings:
    """What a student copies, and how much each part counts.

    Attributes:
        temperature: softens logits before they are compared (Hinton et al., 2015).
        feature_temperature: softens a feature channel over its pixels (Shu et al., 2021).
        feature_weight: of the feature loss beside one head's; 0 copies no features.
        features: modules whose outputs are copied: "name", or "student name=teacher name" where
            they differ; empty chooses modules that both have, see `choose_taps`.
        confident: lowest class probability of the teacher where its boxes are copied.
        label_weight: of the loss on labels beside one head's, where there are labels.
        by_output: compares each output by its squared error, whatever its head. A head's own loss
            looks where it sees something, or is blind to what its decoder drops (the offset of all
            logits): right for a student that has to learn, wrong for one that is nearly there.
        batch_norm: "auto" holds the statistics that the student's BatchNorms have stored while it
            trains, and takes those of batches where they have none yet; "hold" holds all, "train"
            none.
        batch_norm_batches: batches from which BatchNorm's statistics are estimated anew.
        negligible: share of the loss of a constant answer up to which a loss is not seen; most
            losses are squares, so 1e-3 are three per cent of what the output varies by.
    """

    temperature: float = 2.0
    feature_temperature: float = 4.0
    feature_weight: float = 0.5
    features: tuple[str, ...] = ()
    confident: float = 0.05
    label_weight: float = 1.0
    by_output: bool = False
    batch_norm: str = "auto"
    batch_norm_batches: int = 16
    negligible: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("temperature", "feature_temperature"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}", "a number above 0")
        for name in ("feature_weight", "label_weight", "batch_norm_batches", "negligible"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}", "0 or more")
        if self.batch_norm not in BATCH_NORM:
            raise InputError(f"batch_norm is {self.batch_norm}", f"one of {', '.join(BATCH_NORM)}")
        if not 0 <= self.confident < 1:
            raise InputError(f"confident is {self.confident}", "a probability below 1")
