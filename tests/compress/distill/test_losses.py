"""Every loss is smallest where the student answers as its teacher."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.distill.balance import UncertaintyBalance
from compress.distill.losses import HEAD_LOSSES, plain_loss
from compress.distill.losses.divergence import channel_wise_divergence, soft_divergence
from compress.distill.settings import DistillSettings

SETTINGS = DistillSettings()
SHAPES = {
    "detection": {"detection_class_8": 3, "detection_box_8": 4, "detection_centre_8": 1},
    "segmentation": {"segmentation": 6},
    "depth": {"depth": 1},
    "other": {"other": 5},
}


def outputs(head: str, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(2, channels, 6, 8, generator=generator)
        for name, channels in SHAPES[head].items()
    }


@pytest.mark.parametrize("head", SHAPES)
def test_a_head_is_pulled_to_its_teacher(head: str) -> None:
    loss = HEAD_LOSSES.get(head, plain_loss)
    teacher = outputs(head, 1)
    student = {name: value.requires_grad_() for name, value in outputs(head, 2).items()}
    assert float(loss(teacher, teacher, SETTINGS)) == pytest.approx(0.0, abs=2e-4)
    start = float(loss(student, teacher, SETTINGS).detach())
    optimizer = torch.optim.Adam(student.values(), lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        loss(student, teacher, SETTINGS).backward()
        optimizer.step()
    assert float(loss(student, teacher, SETTINGS).detach()) < 0.05 * start


def test_boxes_count_only_where_the_teacher_sees_something() -> None:
    teacher, student = outputs("detection", 1), outputs("detection", 1)
    teacher["detection_class_8"] = torch.full_like(teacher["detection_class_8"], -9.0)
    student["detection_class_8"] = teacher["detection_class_8"].clone()
    student["detection_box_8"] = teacher["detection_box_8"] + 1
    loss = HEAD_LOSSES["detection"]
    assert float(loss(student, teacher, SETTINGS)) == pytest.approx(0.0, abs=1e-6)
    teacher["detection_class_8"][0, 1, 2, 3] = 6.0
    student["detection_class_8"][0, 1, 2, 3] = 6.0
    assert float(loss(student, teacher, SETTINGS)) > 0.1


def test_classes_of_a_student_near_its_teacher_still_count() -> None:
    """Twice the error costs four times as much; weights that fall with the error made it 16."""
    teacher = outputs("detection", 1)
    loss = HEAD_LOSSES["detection"]

    def cost(error: float) -> float:
        classes = teacher["detection_class_8"].double()
        moved = classes + error * torch.sign(
            torch.sin(torch.arange(classes.numel())).view_as(classes)
        )
        double = {name: value.double() for name, value in teacher.items()}
        return float(loss(double | {"detection_class_8": moved}, double, SETTINGS))

    assert cost(0.02) / cost(0.01) == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize("columns", [1, 6])
def test_a_vector_of_numbers_is_learned_with_its_offset(columns: int) -> None:
    """A pose and logits look alike; a divergence of softmaxes would not see the offset."""
    generator = torch.Generator().manual_seed(0)
    teacher = {"pose": torch.randn(16, columns, generator=generator)}
    moved = {"pose": teacher["pose"] + 2}
    variance = float(teacher["pose"].var(correction=0))
    assert float(plain_loss(moved, teacher, SETTINGS)) == pytest.approx(4 / variance, rel=1e-5)
    student = {"pose": torch.zeros(16, columns, requires_grad=True)}
    optimizer = torch.optim.Adam(student.values(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        plain_loss(student, teacher, SETTINGS).backward()
        optimizer.step()
    torch.testing.assert_close(student["pose"].detach(), teacher["pose"], atol=0.02, rtol=0)


def test_an_offset_of_the_depth_costs_less_than_the_same_error_at_random() -> None:
    """The scale-invariant part forgives most of a common offset."""
    teacher = outputs("depth", 1)
    offset = {"depth": teacher["depth"] + 0.3}
    signs = torch.where(torch.rand(teacher["depth"].shape) < 0.5, -0.3, 0.3)
    scattered = {"depth": teacher["depth"] + signs}
    loss = HEAD_LOSSES["depth"]
    assert float(loss(offset, teacher, SETTINGS)) < float(loss(scattered, teacher, SETTINGS))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), temperature=st.floats(0.5, 8))
def test_divergence_is_never_negative_and_blind_to_an_offset(seed: int, temperature: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = torch.randn(2, 3, 5, 4, 4, generator=generator)
    divergence = soft_divergence(left, right, 1, temperature)
    assert float(divergence.min()) >= -1e-5
    moved = soft_divergence(left + 7, right - 2, 1, temperature)
    torch.testing.assert_close(moved, divergence, atol=2e-4, rtol=1e-3)
    maps = channel_wise_divergence(left, right, temperature)
    scaled = channel_wise_divergence(left + torch.randn(3, 5, 1, 1), right, temperature)
    torch.testing.assert_close(scaled, maps, atol=2e-4, rtol=1e-3)


def test_balanced_losses_pull_alike_whatever_their_units() -> None:
    weight = torch.ones(2, requires_grad=True)
    balance = UncertaintyBalance(("large", "small"))
    losses = {"large": 1e4 * weight[0].square(), "small": 1e-3 * weight[1].square()}
    balance.start({name: float(value.detach()) for name, value in losses.items()})
    torch.stack(list(balance(losses).values())).sum().backward()
    assert weight.grad is not None
    assert float(weight.grad[0]) == pytest.approx(float(weight.grad[1]), rel=1e-3)


def test_a_solved_loss_is_not_blown_up() -> None:
    balance = UncertaintyBalance(("only",)).train()
    balance.start({"only": 1.0})
    for _ in range(1000):
        weighted = balance({"only": torch.tensor(1e-9)})
    assert float(weighted["only"]) <= 1.01e-9 * 100
    assert math.isfinite(float(balance.levels))
