import math

import pytest
import torch

from compress.prune.difference import largest_difference

VALUES = torch.tensor([0.5, -2.0, 0.0, 1.0], dtype=torch.float64)


@pytest.mark.parametrize("factor", [1e-9, 1.0, 1e9])
def test_a_difference_is_a_share_of_the_largest_value(factor):
    found = VALUES + torch.tensor([0.0, 0.0, 0.25, 0.0])
    assert largest_difference(factor * found, factor * VALUES) == pytest.approx(0.125)


@pytest.mark.parametrize("fill", [-1e4, -1e9, torch.finfo(torch.float32).min, -math.inf, math.inf])
@pytest.mark.parametrize("masked", [1, 100])
def test_masked_values_hide_nothing(fill, masked):
    mask = torch.full((masked,), fill, dtype=torch.float64)
    wanted = torch.cat([VALUES, mask])
    found = torch.cat([VALUES + torch.tensor([0.0, 0.0, 0.25, 0.0]), mask])
    assert largest_difference(found, wanted) == pytest.approx(0.125)
    assert largest_difference(wanted, wanted) == 0.0


def test_masked_values_are_compared_with_themselves():
    wanted = torch.cat([VALUES, torch.full((3,), -1e9, dtype=torch.float64)])
    assert largest_difference(wanted * (1 + 1e-12), wanted) < 1e-11
    found = wanted.clone()
    found[-1] = -0.5e9
    assert largest_difference(found, wanted) == pytest.approx(0.5)


def test_large_values_without_a_gap_and_what_rounding_leaves_of_zero_are_no_masks():
    wide = torch.logspace(-3, 6, 50, dtype=torch.float64)
    assert largest_difference(wide + 1.0, wide) == pytest.approx(1e-6)
    noise = torch.tensor([1e-17, 2e5, 3e5], dtype=torch.float64)
    assert largest_difference(noise + 1e-12, noise) < 1e-15


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_infinite_or_no_number_in_one_only_differs(value):
    found = VALUES.clone()
    found[0] = value
    assert not largest_difference(found, VALUES) <= 1e-9
    assert not largest_difference(VALUES, found) <= 1e-9


def test_what_is_no_number_in_both_proves_nothing():
    both = torch.tensor([1.0, math.nan])
    assert math.isnan(largest_difference(both, both.clone()))


def test_integers_are_equal_or_not():
    labels = torch.tensor([1, 2, 3])
    assert largest_difference(labels, labels.clone()) == 0.0
    assert largest_difference(labels, labels + 1) == 1.0


def test_nothing_but_zeros_and_nothing_at_all():
    zeros = torch.zeros(3, dtype=torch.float64)
    assert largest_difference(zeros + 0.5, zeros) == 0.5
    assert largest_difference(zeros[:0], zeros[:0]) == 0.0
