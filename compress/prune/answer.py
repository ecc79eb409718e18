"""What a network answers in a proof: its outputs, and the values by which it chooses."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from compress.prune.analysis.api import output_tensors
from compress.prune.difference import largest_difference
from compress.prune.double_precision import run_widely

_CHOOSING = frozenset(
    {
        *("argmax", "argmin", "topk", "sort", "kthvalue", "max", "min", "nms"),
        *("gt", "ge", "lt", "le", "sign", "round", "floor", "ceil", "trunc"),
        *("bucketize", "searchsorted"),
    }
)
"""Their results are the same for values that differ, as long as the same one is chosen."""
_ROUNDING = 1e-13
"""Differences below are rounding, as in what is left of two equal values: `(a - b) < limit`."""


@dataclass(frozen=True)
class Choice:
    """An operator that chooses, and the values by which it does."""

    operator: str
    values: tuple[Tensor, ...]


@dataclass(frozen=True)
class Answer:
    """The outputs of a run, and its choices in order."""

    outputs: list[Tensor]
    choices: list[Choice]

    def difference(self, wanted: "Answer") -> float:
        """Returns how far it is from another with outputs of the same shapes.

        The values by which both choose count as outputs do, where they have the same shapes: of
        a code book the same entry may be taken on one sample, and another on the next.

        Returns:
            see `largest_difference`; the largest of all.
        """
        pairs = zip(self.outputs, wanted.outputs, strict=True)
        apart = [largest_difference(one, other) for one, other in pairs]
        return float(np.max([*apart, *_compare_choices(self.choices, wanted.choices)]))


class _Choices(TorchDispatchMode):
    """Remembers the values by which a network chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Choice] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._overloadpacket.__name__.removesuffix("_")
        if name in _CHOOSING:
            values = tuple(
                one.detach().clone()
                for one in args
                if isinstance(one, Tensor) and one.ndim and one.is_floating_point()
            )
            self.found.append(Choice(name, values))
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def find_answer(module: nn.Module, inputs: tuple[Tensor, ...]) -> Answer:
    """Runs a network, see `run_widely`.

    Raises:
        InputError: it fails, or answers no tensor.
    """
    choices = _Choices()
    with choices:
        outputs = output_tensors(run_widely(module, inputs))
    return Answer(outputs, choices.found)


def _compare_choices(found: list[Choice], wanted: list[Choice]) -> list[float]:
    """Returns how far the values are apart by which the same operators choose in both runs."""
    counts = [Counter(one.operator for one in choices) for choices in (found, wanted)]
    apart = []
    for operator in counts[0]:
        if counts[0][operator] == counts[1][operator]:
            both = [[one for one in all_ if one.operator == operator] for all_ in (found, wanted)]
            apart += [_compare_values(*pair) for pair in zip(*both, strict=True)]
    return apart


def _compare_values(found: Choice, wanted: Choice) -> float:
    if [one.shape for one in found.values] != [one.shape for one in wanted.values]:
        return 0.0
    pairs = zip(found.values, wanted.values, strict=True)
    return max((_compare_numbers(*pair) for pair in pairs), default=0.0)


def _compare_numbers(found: Tensor, wanted: Tensor) -> float:
    """Returns how far two tensors are apart where both are numbers, beyond rounding."""
    is_known = ~(found.isnan() | wanted.isnan())
    found, wanted = found[is_known], wanted[is_known]
    is_near = (found - wanted).abs() <= _ROUNDING
    return largest_difference(torch.where(is_near, wanted, found), wanted)
