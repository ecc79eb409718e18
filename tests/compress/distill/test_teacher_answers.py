"""A teacher is asked once for each held-out batch, a student once for each of its states."""

import pytest
import torch
from torch import nn

from compress.distill.lesson import DistillLesson
from compress.distill.outputs import match_outputs
from compress.distill.relative_probe import RelativeProbe, measure_floors, measure_losses
from compress.distill.settings import DistillSettings
from compress.distill.teacher_answers import TeacherAnswers


class Counted(nn.Module):
    """A convolution that counts its calls and answers from the same memory each time."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layer = nn.Conv2d(3, 2, 1)
        self.calls = 0
        self.memory = torch.zeros(2, 2, 4, 4)

    def forward(self, x):
        self.calls += 1
        with torch.no_grad():
            return {"masks": self.memory.copy_(self.layer(x))}


@pytest.fixture
def batches() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [{"image": torch.randn(2, 3, 4, 4, generator=generator)} for _ in range(3)]


def test_a_network_scored_before_is_not_computed_again(batches) -> None:
    student, teacher = Counted(1).eval(), Counted(2).eval()
    x = batches[0]["image"]
    lesson = DistillLesson(
        student, teacher, match_outputs(student(x), teacher(x)), (), DistillSettings()
    )
    before, floors = measure_losses(lesson, batches), measure_floors(lesson, batches)
    probe = RelativeProbe(lesson, batches, before, floors)
    student.calls = teacher.calls = 0
    assert probe(student) == probe(student)
    assert (student.calls, teacher.calls) == (3, 3)
    as_it_came = probe(student)
    with torch.no_grad():
        student.layer.bias.add_(0.5)
    moved = probe(student)
    assert moved != as_it_came
    assert (student.calls, teacher.calls) == (6, 3)
    assert moved == RelativeProbe(lesson, batches, before, floors)(student)


@pytest.mark.parametrize(("most_bytes", "calls"), [(2**20, 3), (500, 5), (0, 6)])
def test_answers_are_kept_as_far_as_memory_allows(batches, most_bytes, calls) -> None:
    """A batch has 256 bytes of answers."""
    teacher = Counted(2).eval()
    answers = TeacherAnswers(teacher, ["layer"] if most_bytes == 2**20 else [], most_bytes)
    inputs = [(batch["image"],) for batch in batches]
    first = [answers.find(number, one)[0]["masks"].clone() for number, one in enumerate(inputs)]
    again = [answers.find(number, one)[0]["masks"].clone() for number, one in enumerate(inputs)]
    assert teacher.calls == calls
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
