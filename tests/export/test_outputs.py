from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch

from artifacts.errors import InputError
from export.outputs import flatten_outputs

A, B, C = (torch.zeros(i) for i in (1, 2, 3))
Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Detected:
    boxes: torch.Tensor
    scores: torch.Tensor


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (A, ["output"]),
        ((A, B), ["output_0", "output_1"]),
        ([A, (B, C)], ["output_0", "output_1_0", "output_1_1"]),
        ({"boxes": A, "scores": B}, ["boxes", "scores"]),
        ({"p": [A, B], "aux": {"depth": C}}, ["p_0", "p_1", "aux_depth"]),
        (({"x": A}, B), ["output_0_x", "output_1"]),
        (Pair(A, B), ["left", "right"]),
        (Detected(A, B), ["boxes", "scores"]),
        ({"a": A, "loss": None, "n": 3}, ["a"]),
    ],
)
def test_every_nesting_gets_names(value, names):
    assert [name for name, _ in flatten_outputs(value)] == names


def test_a_declared_order_wins_only_if_it_names_exactly_the_outputs():
    value = {"b": B, "a": A}
    assert [name for name, _ in flatten_outputs(value, ("a", "b"))] == ["a", "b"]
    assert [name for name, _ in flatten_outputs(value, ("a",))] == ["b", "a"]


def test_no_tensor_and_equal_names_are_refused():
    with pytest.raises(InputError, match="no tensor"):
        flatten_outputs({"a": 1})
    with pytest.raises(InputError, match="'a_0'"):
        flatten_outputs({"a": [A], "a_0": B})
