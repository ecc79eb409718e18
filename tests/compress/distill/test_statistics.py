"""Statistics that follow the weights slowly do not hide what was learned."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from artifacts.errors import InputError
from artifacts.module_copy import copy_module
from compress.distill.api import distill_module
from compress.distill.settings import DistillSettings
from compress.train.settings import TrainerSettings


def make_network(width: int, seed: int, momentum: float) -> nn.Module:
    """Three convolutions with BatchNorms, as of networks trained for long (momentum 0.01)."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs in (3, width, width):
        layers += [
            nn.Conv2d(inputs, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width, momentum=momentum),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.Conv2d(width, 2, 1))


@pytest.mark.parametrize("momentum", [0.1, 0.001])
def test_a_short_run_is_taken_with_any_momentum_of_batch_norm(momentum: float) -> None:
    rng = np.random.default_rng(0)
    images = [{"image": rng.standard_normal((3, 12, 12), np.float32)} for _ in range(24)]
    student, teacher = make_network(8, 1, momentum), make_network(12, 2, 0.1)
    teacher.train()(torch.from_numpy(np.stack([one["image"] for one in images])))
    training = TrainerSettings(
        steps=40, batch_size=4, learning_rate=1e-2, threads=1, device="cpu", probe_every=20
    )
    result = distill_module(student, teacher, images[4:], images[:4], training=training)
    assert result.best_step > 0
    assert result.scores[-1][1] < 0.8 * result.scores[0][1]
    assert result.score_after <= result.scores[-1][1]


@pytest.mark.parametrize("is_like", [True, False])
def test_statistics_are_held_where_those_of_batches_are_nothing_like_them(
    is_like: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A network that never saw such data in training mode computes something else on batches."""
    rng = np.random.default_rng(0)
    images = [{"image": 3 + rng.standard_normal((3, 12, 12), np.float32)} for _ in range(24)]
    teacher = make_network(12, 2, 1.0)
    if is_like:
        teacher.train()(torch.from_numpy(np.stack([one["image"] for one in images])))
    student = copy_module(teacher)
    with torch.no_grad():
        student[-1].weight *= 0.9
    training = TrainerSettings(
        steps=6, batch_size=4, learning_rate=1e-3, threads=1, device="cpu", probe_every=3
    )
    result = distill_module(student, teacher, images[4:], images[:4], training=training)
    assert ("hold their statistics" in caplog.text) is not is_like
    assert result.best_step > 0
    assert result.score_after < 0.95 * result.score_before


@pytest.mark.parametrize(
    ("choice", "held"),
    [("auto", {"1", "4"}), ("hold", {"1", "4", "7"}), ("train", set())],
)
def test_statistics_that_were_stored_are_held_while_training(choice: str, held: set[str]) -> None:
    """The last BatchNorm of the student has seen no data yet."""
    rng = np.random.default_rng(0)
    images = [{"image": rng.standard_normal((3, 12, 12), np.float32)} for _ in range(12)]
    teacher = make_network(8, 2, 1.0)
    teacher.train()(torch.from_numpy(np.stack([one["image"] for one in images])))
    student = copy_module(teacher)
    student[7].reset_running_stats()
    seen: set[str] = set()

    def look(norm: nn.Module, _: tuple[torch.Tensor, ...], name: str) -> None:
        if norm.training and torch.is_grad_enabled():
            seen.add(name)

    for name in ("1", "4", "7"):
        student.get_submodule(name).register_forward_pre_hook(partial(look, name=name))
    settings = DistillSettings(batch_norm=choice, batch_norm_batches=0)
    training = TrainerSettings(steps=2, batch_size=4, threads=1, device="cpu", probe_every=2)
    distill_module(student, teacher, images[4:], images[:4], settings, training)
    assert seen == {"1", "4", "7"} - held


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(InputError, match="batch_norm is frozen; expected one of auto, hold, train"):
        DistillSettings(batch_norm="frozen")


def test_a_norm_behind_a_mean_may_see_a_single_value_in_the_last_batch() -> None:
    """Five samples in batches of two, and statistics that were never estimated."""
    rng = np.random.default_rng(0)
    images = [{"image": rng.standard_normal((3, 8, 8), np.float32)} for _ in range(7)]
    torch.manual_seed(0)
    layers = nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)
    teacher = nn.Sequential(*layers).eval()
    student = copy_module(teacher)
    training = TrainerSettings(steps=1, batch_size=2, threads=1, device="cpu", probe_every=1)
    settings = DistillSettings(batch_norm_batches=0)
    result = distill_module(student, teacher, images[2:], images[:2], settings, training)
    assert np.isfinite(result.score_after)
