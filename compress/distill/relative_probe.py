"""Scores a student by its losses beside those with which it came."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from compress.distill.lesson import DistillLesson
from compress.distill.teacher_answers import Answers, TeacherAnswers
from compress.train.batch_norm import batch_statistics
from compress.train.lesson import Batch
from compress.train.run_state import digest_values

SMALLEST_FLOOR = 1e-6
"""What float32 leaves of a divergence between equal distributions, with room."""


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """The loss whose rise kept a trained network from being taken.

    Attributes:
        loss: name of the head.
        before: its value for the best network.
        after: its value for the next best.
    """

    loss: str
    before: float
    after: float


class RelativeProbe:
    """Returns the mean over the heads of the loss relative to that of the student as it came.

    A loss counts relative to its floor where it started below. A head that came equal to its
    teacher may so move by an amount that nobody sees, and costs as much as any other when it moves
    by more.

    Args:
        lesson: the losses of its heads are measured, those of features and labels are not.
        batches: held out, on the device of the networks that will be scored.
        before: losses of the student as it came.
        floors: see `measure_floors`.
        answers: the teacher's to the batches, by their number; None opens one.
    """

    def __init__(
        self,
        lesson: DistillLesson,
        batches: Sequence[Batch],
        before: Mapping[str, float],
        floors: Mapping[str, float],
        answers: TeacherAnswers | None = None,
    ) -> None:
        self._lesson = DistillLesson(
            lesson.student,
            lesson.__dict__["teacher"],
            lesson.match,
            (),
            lesson.settings,
            inputs=lesson.inputs,
            parts=lesson.parts,
            written=lesson.written,
        )
        self._batches = batches
        self._before = before
        self._floors = floors
        self._seen: list[dict[str, float]] = []
        self._answers = answers or lesson.open_answers()
        self._known: dict[str, dict[str, float]] = {}

    def __call__(self, network: nn.Module) -> float:
        """Scores a network in evaluation mode; lower is better.

        A network whose every number was scored before has the losses that it had then.
        """
        values = digest_values(network.named_parameters(), network.named_buffers())
        if values not in self._known:
            self._lesson.student = network
            self._known[values] = measure_losses(self._lesson, self._batches, self._answers)
        self._seen.append(self._known[values])
        return self._score(self._known[values])

    @torch.no_grad()
    def rise_by_batch_statistics(self, lesson: DistillLesson, batches: Sequence[Batch]) -> float:
        """Returns how many times the score is larger where BatchNorms see batches, as in training.

        Args:
            lesson: whose losses are measured.
            batches: of as many samples as in training, the last of no more.
        """
        stored = self._score(measure_losses(lesson, batches))
        with batch_statistics(lesson.student, lesson.read_inputs(batches[-1])):
            seen = self._score(_average([lesson.compare(batch) for batch in batches]))
        return seen / max(stored, SMALLEST_FLOOR)

    def forget(self) -> None:
        """Leaves what was scored so far out of `find_obstacle`."""
        self._seen = []

    def find_obstacle(self) -> Obstacle | None:
        """Returns the loss that rose most between the best network seen and the next best."""
        if not self._seen:
            return None
        best = min(self._seen, key=self._score)
        others = [losses for losses in self._seen if self._score(losses) > self._score(best)]
        if not others:
            return None
        other = min(others, key=self._score)
        name = max(other, key=lambda name: (other[name] - best[name]) / self._unit(name))
        return Obstacle(loss=name, before=best[name], after=other[name])

    def _score(self, losses: Mapping[str, float]) -> float:
        heads = self._lesson.match.heads
        return sum(max(losses[name], 0.0) / self._unit(name) for name in heads) / len(heads)

    def _unit(self, name: str) -> float:
        return max(self._before[name], self._floors[name])


@torch.no_grad()
def measure_losses(
    lesson: DistillLesson, batches: Sequence[Batch], answers: TeacherAnswers | None = None
) -> dict[str, float]:
    """Returns the mean of each loss over the batches, in evaluation mode.

    Args:
        lesson: with the student.
        batches: samples, stacked.
        answers: the teacher's to the batches, by their number; None asks it.
    """
    lesson.eval()
    known = _find_answers(lesson, batches, answers)
    return _average([lesson.compare(batch, known(number)) for number, batch in enumerate(batches)])


@torch.no_grad()
def measure_floors(
    lesson: DistillLesson, batches: Sequence[Batch], answers: TeacherAnswers | None = None
) -> dict[str, float]:
    """Returns, per head and for the features, the loss up to which a difference is not seen.

    It is `DistillSettings.negligible` times the loss of a student whose every output is one number,
    the mean of the teacher's; so it has the units of the loss. `answers` as in `measure_losses`.
    """
    lesson.eval()
    share = lesson.settings.negligible
    known = _find_answers(lesson, batches, answers)
    trivial = _average(
        [lesson.compare_constants(batch, known(number)) for number, batch in enumerate(batches)]
    )
    return {name: max(share * value, SMALLEST_FLOOR) for name, value in trivial.items()}


def _find_answers(
    lesson: DistillLesson, batches: Sequence[Batch], answers: TeacherAnswers | None
) -> Callable[[int], Answers | None]:
    """Returns what finds the teacher's answers to a batch by its number."""
    if answers is None:
        return lambda number: None
    return lambda number: answers.find(number, lesson.read_inputs(batches[number]))


def _average(losses: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, float]:
    return {name: sum(float(batch[name]) for batch in losses) / len(losses) for name in losses[0]}
