"""What a teacher answers to held-out batches, asked for once as far as memory allows.

A teacher does not change, and every probe asks it the same.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from compress.distill.taps import captured
from compress.train.answers import Ask, answer_plainly
from compress.train.lesson import find_device

MOST_BYTES = 256 * 2**20
"""What is kept of answers; those beyond are computed anew each time."""

Answers = tuple[dict[str, Tensor], dict[str, Tensor]]
"""A teacher's outputs and its features, by name."""


@torch.no_grad()
def ask_teacher(
    teacher: nn.Module, features: Sequence[str], inputs: tuple[Tensor, ...], ask: Ask
) -> Answers:
    """Returns what a teacher answers and the outputs of its modules called `features`."""
    if find_device(teacher) != inputs[0].device:
        teacher.to(inputs[0].device)
    with captured(teacher, features) as seen:
        outputs = ask(teacher, inputs)
    return outputs, seen


class TeacherAnswers:
    """Answers of a teacher to numbered batches.

    Args:
        teacher: in evaluation mode.
        features: names of the modules whose outputs are wanted too.
        most_bytes: of all answers that are kept.
        ask: returns what a module answers.
    """

    def __init__(
        self,
        teacher: nn.Module,
        features: Sequence[str],
        most_bytes: int = MOST_BYTES,
        ask: Ask = answer_plainly,
    ) -> None:
        self._teacher = teacher
        self._features = tuple(features)
        self._ask = ask
        self._left_bytes = most_bytes
        self._known: dict[int, Answers] = {}

    def find(self, number: int, inputs: tuple[Tensor, ...]) -> Answers:
        """Returns the answers to a batch.

        Args:
            number: of the batch; the same one always stands for the same inputs.
            inputs: the teacher's arguments.
        """
        if number not in self._known:
            answers = ask_teacher(self._teacher, self._features, inputs, self._ask)
            size = sum(value.nbytes for part in answers for value in part.values())
            if size > self._left_bytes:
                return answers
            self._left_bytes -= size
            outputs, features = answers
            self._known[number] = _copies(outputs), _copies(features)
        return self._known[number]


def _copies(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns copies: a network may write its next answer into the memory of this one."""
    return {name: value.clone() for name, value in values.items()}
