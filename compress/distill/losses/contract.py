"""What a head's distillation loss is."""

from typing import Protocol

from torch import Tensor

from compress.distill.settings import DistillSettings

HeadOutputs = dict[str, Tensor]
"""Raw outputs of one head by name, equal names and shapes for student and teacher."""


class HeadLoss(Protocol):
    """Compares one head's outputs."""

    def __call__(
        self, student: HeadOutputs, teacher: HeadOutputs, settings: DistillSettings
    ) -> Tensor:
        """Returns a scalar, 0 or more; smallest where the student's outputs are the teacher's."""
        ...
