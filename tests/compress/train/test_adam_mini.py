"""One second moment per channel, and what that means for the proportions of its weights."""

import pytest
import torch

from compress.train.adam_mini import AdamMini

RATE = 0.1


def test_the_first_step_moves_a_channel_along_its_gradient() -> None:
    weight = torch.nn.Parameter(torch.zeros(2, 3))
    weight.grad = torch.tensor([[3.0, 0.03, 0.0], [0.0, -1e-4, 1e-4]])
    AdamMini([weight], lr=RATE).step()
    for moved, gradient in zip(weight.detach(), weight.grad, strict=True):
        expected = -RATE * gradient / gradient.square().mean().sqrt()
        torch.testing.assert_close(moved, expected, rtol=1e-3, atol=0)


def test_vectors_and_numbers_are_moved_as_by_adam() -> None:
    torch.manual_seed(0)
    start = [torch.randn(5), torch.randn(())]
    ours, theirs = ([torch.nn.Parameter(item.clone()) for item in start] for _ in range(2))
    optimizers = (AdamMini(ours, lr=RATE), torch.optim.AdamW(theirs, lr=RATE, weight_decay=0.0))
    for _ in range(7):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = other.grad = torch.randn(one.shape)
        for optimizer in optimizers:
            optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_noise_beside_its_neighbours_hardly_moves() -> None:
    """Adam moves a weight whose gradient is noise as fast as one that matters."""
    torch.manual_seed(0)
    noise = 1e-3
    moves = {}
    for kind in (AdamMini, torch.optim.AdamW):
        weight = torch.nn.Parameter(torch.zeros(1, 2))
        optimizer = kind([weight], lr=RATE, weight_decay=0.0)
        for _ in range(20):
            weight.grad = torch.tensor([[1.0, noise * float(torch.randn(()))]])
            optimizer.step()
        moves[kind] = weight.detach().abs()[0]
    matters, idle = moves[AdamMini]
    assert idle < 2 * noise * matters
    assert moves[torch.optim.AdamW][1] > 100 * idle


def test_weight_decay_is_decoupled() -> None:
    weight = torch.nn.Parameter(torch.ones(1, 2))
    weight.grad = torch.zeros(1, 2)
    AdamMini([weight], lr=RATE, weight_decay=0.5).step()
    torch.testing.assert_close(weight.detach(), torch.full((1, 2), 1 - RATE * 0.5))


def test_a_closure_is_refused() -> None:
    with pytest.raises(ValueError, match="closure"):
        AdamMini([torch.nn.Parameter(torch.ones(1))]).step(lambda: 0.0)
