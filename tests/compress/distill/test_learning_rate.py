"""Without a learning rate, distillation finds one that fits its student."""

import pytest
import torch
from torch import nn

from compress.distill.api import DistillResult, distill_module
from compress.train.rate_trial import USUAL_RATE
from compress.train.settings import TrainerSettings

HAND_SET = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


class Masks(nn.Module):
    """Two layers and their normalization."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1),
            nn.GroupNorm(1, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, 3, 1),
        )

    def forward(self, x):
        return self.layers(x)


def disturbed(share: float) -> nn.Module:
    """The teacher, each weight moved by about a share of its layer's spread."""
    student = Masks(24, 1)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in student.parameters():
            if weight.ndim > 1:
                weight.add_(share * weight.std() * torch.randn(weight.shape, generator=generator))
    return student


STUDENTS = {
    "hardly changed": lambda: disturbed(0.02),
    "changed": lambda: disturbed(0.1),
    "narrow and from nothing": lambda: Masks(12, 3),
}


def distil(student: nn.Module, rate: float | None) -> DistillResult:
    images = torch.randn(40, 3, 16, 16, generator=torch.Generator().manual_seed(0)).numpy()
    samples = [{"image": image} for image in images]
    training = TrainerSettings(
        steps=60, batch_size=4, threads=1, device="cpu", probe_every=20, learning_rate=rate
    )
    return distill_module(student, Masks(24, 1), samples[8:], samples[:8], training=training)


@pytest.mark.parametrize("name", list(STUDENTS))
def test_the_rate_that_is_found_is_as_good_as_the_best_set_by_hand(name: str) -> None:
    by_hand = {rate: distil(STUDENTS[name](), rate).score_after for rate in HAND_SET}
    found = distil(STUDENTS[name](), None)
    assert found.score_after <= 1.15 * min(by_hand.values())
    if name != "changed":
        assert found.score_after < 0.8 * by_hand[USUAL_RATE]
