"""The lesson of a distillation: what student and teacher answer to the same input."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from compress.distill.balance import UncertaintyBalance
from compress.distill.losses import HEAD_LOSSES, plain_loss
from compress.distill.losses.divergence import channel_wise_divergence
from compress.distill.outputs import OutputMatch, name_outputs
from compress.distill.settings import DistillSettings
from compress.distill.taps import Tap, captured
from compress.train.lesson import Batch, Lesson, find_device

IMAGE = "image"
"""Name of the network's input in a batch; everything else in it is labels."""
LabelLoss = Callable[[dict[str, Tensor], Batch], dict[str, Tensor]]
"""From the student's outputs and the labels to the terms of a loss."""


class DistillLesson(Lesson):
    """Compares the heads and the features of a student with its teacher's.

    Args:
        student: the network that learns.
        teacher: the network it learns from; never trained, and no part of this module's state.
        match: the outputs to compare.
        taps: the features to compare; where channels differ, a 1x1 convolution adapts them.
        settings: weights and temperatures.
        label_loss: loss on labels; None where there are none.
    """

    def __init__(
        self,
        student: nn.Module,
        teacher: nn.Module,
        match: OutputMatch,
        taps: Sequence[Tap],
        settings: DistillSettings,
        label_loss: LabelLoss | None = None,
    ) -> None:
        super().__init__(student)
        self.__dict__["teacher"] = teacher.eval().requires_grad_(False)
        self.match = match
        self.taps = tuple(taps) if settings.feature_weight > 0 else ()
        self.settings = settings
        self.label_loss = label_loss if settings.label_weight > 0 else None
        self.adapters = nn.ModuleDict(
            {
                str(index): nn.Conv2d(tap.student_channels, tap.teacher_channels, 1)
                for index, tap in enumerate(self.taps)
                if tap.student_channels != tap.teacher_channels
            }
        )
        self.weights = dict.fromkeys(match.heads, 1.0)
        if self.taps:
            self.weights["features"] = settings.feature_weight
        if self.label_loss is not None:
            self.weights["labels"] = settings.label_weight
        self.balance = UncertaintyBalance(self.weights)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the balanced loss of each head, of the features and of the labels."""
        weighted = self.balance(self.compare(batch))
        return {name: self.weights[name] * value for name, value in weighted.items()}

    def compare(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the losses before they are balanced."""
        teacher: nn.Module = self.__dict__["teacher"]
        image = batch[IMAGE]
        if find_device(teacher) != image.device:
            teacher.to(image.device)
        with ExitStack() as stack:
            ours = stack.enter_context(captured(self.student, [t.student for t in self.taps]))
            theirs = stack.enter_context(captured(teacher, [t.teacher for t in self.taps]))
            with torch.no_grad():
                wanted = name_outputs(teacher, teacher(image))
            got = name_outputs(self.student, self.student(image))
        losses = {}
        for head, names in self.match.heads.items():
            loss = HEAD_LOSSES.get(head, plain_loss)
            losses[head] = loss(
                {name: got[name].float() for name in names},
                {name: wanted[name].float() for name in names},
                self.settings,
            )
        if self.taps:
            losses["features"] = self._compare_features(ours, theirs)
        if self.label_loss is not None:
            labels = {name: value for name, value in batch.items() if name != IMAGE}
            losses["labels"] = torch.stack(list(self.label_loss(got, labels).values())).sum()
        return losses

    def _compare_features(self, ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> Tensor:
        terms = []
        for index, tap in enumerate(self.taps):
            feature = ours[tap.student]
            if str(index) in self.adapters:
                feature = self.adapters[str(index)](feature)
            terms.append(
                channel_wise_divergence(
                    feature.float(),
                    theirs[tap.teacher].float(),
                    self.settings.feature_temperature,
                )
            )
        return torch.stack(terms).mean()
