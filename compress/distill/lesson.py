"""The lesson of a distillation: what student and teacher answer to the same input."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from artifacts.errors import InputError
from artifacts.module_run import buffers_apart
from compress.distill.balance import UncertaintyBalance
from compress.distill.losses import own_losses, plain_loss
from compress.distill.losses.divergence import channel_wise_divergence
from compress.distill.outputs import OutputMatch
from compress.distill.settings import DistillSettings
from compress.distill.taps import Tap, captured
from compress.distill.teacher_answers import Answers, TeacherAnswers, ask_teacher
from compress.train.answers import Ask, answer, answer_plainly
from compress.train.batch_norm import hold_statistics
from compress.train.lesson import Batch, Lesson
from compress.train.unit_parts import OutputParts

IMAGE = "image"
"""Name of a network's single input in a batch; everything else in it is labels."""
LabelLoss = Callable[[dict[str, Tensor], Batch], dict[str, Tensor] | Tensor]
"""From the student's outputs and the labels to a loss, or to its terms by name."""


class DistillLesson(Lesson):
    """Compares the heads and the features of a student with its teacher's.

    Args:
        student: the network that learns.
        teacher: the network it learns from; never trained, and no part of this module's state. Its
            weights go on asking for gradients where they did, as it may be pruned or trained later.
        match: the outputs to compare.
        taps: the features to compare; where channels differ, a 1x1 convolution adapts them.
        settings: weights and temperatures.
        label_loss: loss on labels; None where there are none.
        inputs: what of a batch are the networks' arguments, in their order.
        parts: which outputs `match` compares by their parts.
        written: names of buffers that the networks write as they answer (a state, a count); what
            they write into them is forgotten after each answer.

    Attributes:
        held: names of the student's BatchNorms that compute with what they have stored, also while
            training.
    """

    held: frozenset[str] = frozenset()

    def __init__(
        self,
        student: nn.Module,
        teacher: nn.Module,
        match: OutputMatch,
        taps: Sequence[Tap],
        settings: DistillSettings,
        label_loss: LabelLoss | None = None,
        inputs: Sequence[str] = (IMAGE,),
        parts: OutputParts | None = None,
        written: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(student)
        self.__dict__["teacher"] = teacher.eval()
        self.match = match
        self.inputs = tuple(inputs)
        self.parts = parts or OutputParts()
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
        self.written = written
        ask: Ask = torch.compiler.disable(answer) if match.decided else answer_plainly
        if written:
            ask = torch.compiler.disable(partial(_ask_apart, ask, written))
        self._ask = ask
        self.weights = dict.fromkeys(match.heads, 1.0)
        if self.taps:
            self.weights["features"] = settings.feature_weight
        if self.label_loss is not None:
            self.weights["labels"] = settings.label_weight
        self.balance = UncertaintyBalance(self.weights)

    def train(self, mode: bool = True) -> "DistillLesson":
        """Sets the training mode, see `Lesson.train`."""
        super().train(mode)
        hold_statistics(self.student, self.held)
        return self

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the balanced loss of each head, of the features and of the labels."""
        weighted = self.balance(self.compare(batch))
        return {name: self.weights[name] * value for name, value in weighted.items()}

    def compare(self, batch: Batch, answers: Answers | None = None) -> dict[str, Tensor]:
        """Returns the losses before they are balanced.

        Args:
            batch: samples, stacked.
            answers: the teacher's to them; None asks it.
        """
        inputs = self.read_inputs(batch)
        wanted, theirs = answers or self._ask_teacher(inputs)
        with captured(self.student, [tap.student for tap in self.taps]) as ours:
            got = self._ask(self.student, inputs)
        adapted = self._adapt(ours)
        # Logarithms of probabilities are no matter of 8 bits; some losses refuse autocast on a GPU.
        with torch.autocast(inputs[0].device.type, enabled=False):
            losses = self._compare_heads(got, wanted)
            if self.taps:
                losses["features"] = self._compare_features(adapted, theirs)
            if self.label_loss is not None:
                losses["labels"] = self._compare_labels(self.label_loss, got, batch)
        return losses

    def _compare_labels(
        self, label_loss: LabelLoss, got: Mapping[str, Tensor], batch: Batch
    ) -> Tensor:
        answers = {
            name: value.float() if value.is_floating_point() else value
            for name, value in got.items()
        }
        labels = {name: value for name, value in batch.items() if name not in self.inputs}
        return _add_terms(label_loss(answers, labels))

    def compare_constants(self, batch: Batch, answers: Answers | None = None) -> dict[str, Tensor]:
        """Returns the losses of a student whose outputs and features are their means.

        Args:
            batch: samples, stacked.
            answers: the teacher's to them; None asks it.
        """
        wanted, theirs = answers or self._ask_teacher(self.read_inputs(batch))
        losses = self._compare_heads(_flatten(wanted), wanted)
        if self.taps:
            features = _flatten(theirs)
            losses["features"] = self._compare_features(
                [features[tap.teacher] for tap in self.taps], theirs
            )
        return losses

    def read_inputs(self, batch: Batch) -> tuple[Tensor, ...]:
        """Returns the networks' arguments from a batch."""
        return tuple(batch[name] for name in self.inputs)

    def open_answers(self) -> TeacherAnswers:
        """Returns what remembers the teacher's outputs and features for batches."""
        teacher: nn.Module = self.__dict__["teacher"]
        return TeacherAnswers(teacher, [tap.teacher for tap in self.taps], ask=self._ask)

    def _ask_teacher(self, inputs: tuple[Tensor, ...]) -> Answers:
        teacher: nn.Module = self.__dict__["teacher"]
        return ask_teacher(teacher, [tap.teacher for tap in self.taps], inputs, self._ask)

    def _compare_heads(
        self, got: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        got, wanted = self.parts.split(got), self.parts.split(wanted)
        plain = partial(plain_loss, variances=self.parts.variances)
        known = own_losses(self.settings)
        return {
            head: known.get(head, plain)(
                {name: got[name].float() for name in names},
                {name: wanted[name].float() for name in names},
                self.settings,
            )
            for head, names in self.match.heads.items()
        }

    def _adapt(self, features: Mapping[str, Tensor]) -> list[Tensor]:
        """Returns the student's features, with as many channels as the teacher's."""
        return [
            self.adapters[str(index)](features[tap.student].float())
            if str(index) in self.adapters
            else features[tap.student]
            for index, tap in enumerate(self.taps)
        ]

    def _compare_features(self, features: Sequence[Tensor], theirs: Mapping[str, Tensor]) -> Tensor:
        terms = [
            channel_wise_divergence(
                feature.float(), theirs[tap.teacher].float(), self.settings.feature_temperature
            )
            for feature, tap in zip(features, self.taps, strict=True)
        ]
        return torch.stack(terms).mean()


def _ask_apart(
    ask: Ask, written: frozenset[str], module: nn.Module, inputs: tuple[Tensor, ...]
) -> dict[str, Tensor]:
    """Asks a network that writes buffers; the next sample meets none of what it wrote."""
    with buffers_apart(module, written):
        return ask(module, inputs)


def _add_terms(terms: dict[str, Tensor] | Tensor) -> Tensor:
    """Returns the sum of what a label loss returned.

    Raises:
        InputError: it is no number and no dictionary of numbers.
    """
    values = [terms] if isinstance(terms, Tensor) else list(terms.values())
    shapes = [list(value.shape) for value in values]
    if not values or any(value.numel() != 1 for value in values):
        raise InputError(
            f"the loss on labels returned tensors of shapes {shapes}",
            "a number, or a dictionary of at least one number by name",
            "take the mean over the samples",
        )
    return torch.stack([value.reshape(()) for value in values]).sum()


def _flatten(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.float().mean().expand_as(value) for name, value in values.items()}
