"""Inner feature maps of student and teacher, side by side."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule

from artifacts.errors import InputError
from artifacts.module_names import require_modules
from artifacts.module_run import explain_gradient
from compress.train.answers import answer
from compress.train.saved_values import keep_saved_values

_PARAMETRIZED = "parametrizations"
"""Parts of a layer by that name (`weight_norm`) give its weights, which are no features."""
LARGEST_COUNT = 4
"""Most features that are chosen without being named."""


@dataclass(frozen=True, kw_only=True)
class Tap:
    """A pair of modules whose outputs are compared.

    Attributes:
        student: name of the student's module.
        teacher: name of the teacher's module.
        student_channels: channels of the student's feature map.
        teacher_channels: channels of the teacher's.
    """

    student: str
    teacher: str
    student_channels: int
    teacher_channels: int


def choose_taps(
    student: nn.Module, teacher: nn.Module, inputs: tuple[Tensor, ...], names: Sequence[str] = ()
) -> list[Tap]:
    """Returns the features to compare.

    Without names: of the modules that both networks have under one name, with [N, C, H, W] results
    of the same size that are no outputs of the network, the last one at each resolution of those
    that the most outputs need; at most `LARGEST_COUNT`, those of the highest resolution. Two
    unrelated networks may have none.

    Args:
        student: the network that learns.
        teacher: the network it learns from.
        inputs: arguments of both, [N, ...] each.
        names: "name" or "student name=teacher name".

    Raises:
        InputError: a name is unknown, or its feature maps cannot be compared.
    """
    wanted = split_names(names)
    if not wanted:
        common = dict(teacher.named_modules())
        wanted = [
            (name, name)
            for name, part in student.named_modules()
            if name
            and name in common
            and _PARAMETRIZED not in name.split(".")
            and not isinstance(part, ScriptModule)
            and not isinstance(common[name], ScriptModule)
        ]
    mine = _record(student, [name for name, _ in wanted], inputs, "student")
    theirs = _record(teacher, [name for _, name in wanted], inputs, "teacher")
    if not names:
        wanted = [(name, name) for name in mine]
    pairs = [(one, mine.get(one), other, theirs.get(other)) for one, other in wanted]
    taps = []
    for one, left, other, right in pairs:
        if left is not None and right is not None and left.is_comparable(right):
            taps.append((left, _tap(one, left, other, right)))
        elif names:
            raise InputError(
                f"'{one}' of the student gives {left or 'no map'} and '{other}' of the teacher "
                f"{right or 'no map'}",
                "two maps [N, C, H, W] of the same height and width, of more than one place",
            )
    return [tap for _, tap in taps] if names else _pick(taps)


def split_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the student's and the teacher's module of each "name" or "student=teacher"."""
    pairs = [name.partition("=") for name in names]
    return [(one, other if equals else one) for one, equals, other in pairs]


@dataclass(frozen=True)
class _Feature:
    """A feature map: its shape, and how many of the network's outputs need it."""

    shape: tuple[int, ...]
    reach: int

    def is_comparable(self, other: "_Feature") -> bool:
        """Returns whether both are of as many samples and places; channels are adapted."""
        return self.shape[0] == other.shape[0] and self.shape[2:] == other.shape[2:]

    def __str__(self) -> str:
        return str(list(self.shape))


def _tap(one: str, left: _Feature, other: str, right: _Feature) -> Tap:
    return Tap(
        student=one, teacher=other, student_channels=left.shape[1], teacher_channels=right.shape[1]
    )


def _pick(taps: Sequence[tuple[_Feature, Tap]]) -> list[Tap]:
    """Returns, per resolution, the last feature of those that the most outputs need."""
    best: dict[tuple[int, ...], tuple[int, Tap]] = {}
    for feature, tap in taps:
        size = feature.shape[2:]
        if size not in best or feature.reach >= best[size][0]:
            best[size] = (feature.reach, tap)
    finest_first = sorted(best, key=lambda size: -size[0] * size[1])
    return [best[size][1] for size in finest_first[:LARGEST_COUNT]]


@contextmanager
def captured(module: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Yields a dictionary that gets the output of each named module when the network runs."""
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(part: nn.Module, inputs: Any, output: Any) -> None:
            del part, inputs
            if isinstance(output, Tensor):
                found[name] = output

        return hook

    parts = dict(module.named_modules())
    handles = [parts[name].register_forward_hook(keep(name)) for name in names]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _record(
    module: nn.Module, names: Sequence[str], inputs: tuple[Tensor, ...], whose: str
) -> dict[str, _Feature]:
    """Returns the [N, C, H, W] results that are no outputs, in the order of their making.

    A map of one place is left out: the divergence says where a network looks, which is there alone.
    """
    require_modules(module, names, whose)
    with captured(module, names) as found, torch.enable_grad(), keep_saved_values():
        followed = [
            one.clone().requires_grad_() if one.is_floating_point() else one for one in inputs
        ]
        outputs = answer(module, tuple(followed))
    ends = {id(value) for value in outputs.values()}
    maps = {
        name: m
        for name, m in found.items()
        if m.ndim == 4 and m.shape[2] * m.shape[3] > 1 and id(m) not in ends
    }
    reach = _count_reach(maps, outputs)
    return {name: _Feature(tuple(value.shape), reach[name]) for name, value in maps.items()}


def _count_reach(maps: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> dict[str, int]:
    """Returns how many outputs need each map; choices and detached outputs need none.

    Raises:
        InputError: autograd cannot follow the network.
    """
    reach = dict.fromkeys(maps, 0)
    followed = {name: value for name, value in maps.items() if value.requires_grad}
    if not followed:
        return reach
    for output in outputs.values():
        if not output.requires_grad:
            continue
        try:
            gradients = torch.autograd.grad(
                output.sum(), list(followed.values()), retain_graph=True, allow_unused=True
            )
        except RuntimeError as error:
            raise explain_gradient(error) from error
        for name, gradient in zip(followed, gradients, strict=True):
            reach[name] += gradient is not None
    return reach
