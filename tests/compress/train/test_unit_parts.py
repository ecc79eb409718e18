"""Outputs that join values of unlike units are judged by their parts."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from compress.train.unit_parts import OutputParts, find_parts

PLACES = 20


def answer(seed: int) -> Tensor:
    """Boxes in pixels and probabilities, the last of a class that is seldom seen, [2, 7, 20]."""
    generator = torch.Generator().manual_seed(seed)
    boxes = 300 * torch.rand(2, 4, PLACES, generator=generator)
    classes = (
        torch.rand(2, 3, PLACES, generator=generator) * torch.tensor([0.9, 0.3, 1e-4])[:, None]
    )
    return torch.cat([boxes, classes], 1)


def parts_of(change: Callable[[Tensor], Tensor]) -> OutputParts:
    return find_parts({"out": change(answer(seed))} for seed in range(4))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda out: out, ("out[:, 0:4]", "out[:, 4:7]")),
        (lambda out: out.transpose(1, 2), ("out[..., 0:4]", "out[..., 4:7]")),
        (lambda out: out[:, [4, 0, 5, 1]], ("out[:, 0+2]", "out[:, 1+3]")),
        (lambda out: out[:, :, 0], ("out[:, 0:4]", "out[:, 4:7]")),
        (lambda out: out[:, :4], ("out",)),
        (lambda out: out[:, 4:], ("out",)),
        (lambda out: out[:, 4:].logit(1e-6), ("out",)),
    ],
    ids=["channels", "last axis", "mixed", "vector", "boxes", "classes", "logits"],
)
def test_values_of_one_unit_are_a_part(
    change: Callable[[Tensor], Tensor], names: tuple[str, ...]
) -> None:
    parts = parts_of(change)
    assert parts.names("out") == names
    value = change(answer(9))
    split = parts.split({"out": value, "other": value})
    assert split.keys() == {*names, "other"}
    assert sum(split[name].numel() for name in names) == value.numel()


def test_a_constant_is_no_unit_of_its_own() -> None:
    parts = parts_of(lambda out: torch.cat([out, torch.full_like(out[:, :1], 7.1)], 1))
    assert parts.names("out") == ("out[:, 0:4+7]", "out[:, 4:7]")


@pytest.mark.parametrize(
    "change",
    [
        lambda out: out.masked_fill(out == out[0, 0, 0], -torch.inf),
        lambda out: out.long(),
        lambda out: out[:, :, :0],
        lambda out: out[0, :, 0],
        lambda out: out[:, : 5 + int(out[0, 0, 0]) % 2],
    ],
    ids=["infinite", "integers", "empty", "no axis", "other shapes"],
)
def test_what_has_no_spread_stays_whole(change: Callable[[Tensor], Tensor]) -> None:
    assert parts_of(change).names("out") == ("out",)


def test_few_values_prove_no_units() -> None:
    assert not find_parts([{"out": answer(0)[:, :, 0]}]).of


def test_only_the_outputs_asked_for_are_looked_at() -> None:
    assert not find_parts([{"out": answer(0)}], ["other"]).of


def test_variances_are_of_all_answers_together() -> None:
    answers = [answer(seed) for seed in range(4)]
    parts = find_parts({"out": one, "count": one[:, 0, 0].long()} for one in answers)
    together = torch.cat(answers).double()
    wanted = {
        "out[:, 0:4]": together[:, :4],
        "out[:, 4:7]": together[:, 4:],
        "count": together[:, 0, 0].long().double(),
    }
    assert parts.variances == {
        name: pytest.approx(float(value.var(correction=0))) for name, value in wanted.items()
    }
