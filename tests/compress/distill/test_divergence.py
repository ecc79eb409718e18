"""The divergence of softened distributions."""

import torch

from compress.distill.losses.divergence import soft_divergence


def test_equal_distributions_are_no_less_than_equal() -> None:
    """Rounding takes one sum or the other below zero, in a table as -0.00000."""
    torch.manual_seed(0)
    logits = torch.randn(64, 9)
    moved = soft_divergence(logits + 1e-7 * torch.randn(64, 9), logits, 1, 2.0)
    assert (moved >= 0).all()
    assert moved.max() < 1e-5


def test_different_distributions() -> None:
    even, sure = torch.zeros(1, 2), torch.tensor([[0.0, 100.0]])
    assert soft_divergence(even, sure, 1, 1.0).item() == torch.log(torch.tensor(2.0)).item()
