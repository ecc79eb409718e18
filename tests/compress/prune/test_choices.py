"""Networks that choose: on one sample the same may be chosen by other values."""

import pytest
import torch
from torch import Tensor, nn

from compress.prune.adapt import open_network
from compress.prune.answer import find_answer
from compress.prune.prunable_network import TOLERANCE

IMAGE = (torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(0)),)
CHOICES = {
    "argmax": lambda y: y.argmax(1),
    "sort": lambda y: y.sort(dim=1).indices,
    "topk": lambda y: y.topk(2, dim=1).indices,
    "threshold": lambda y: y > 0,
    "round": lambda y: (y / 100).round(),
}


class Choosing(nn.Module):
    """Attention that divides by the number of its channels; only what is chosen goes out."""

    def __init__(self, choice: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Conv2d(3, 16, 1) for _ in range(3))
        self.out = nn.Conv2d(16, 4, 1)
        self.choose = CHOICES[choice]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).flatten(2) for layer in (self.q, self.k, self.v))
        y = v @ (q.mT @ k * 8 / q.shape[1]).softmax(-1).mT
        return self.choose(self.out(y.unflatten(2, x.shape[2:])))


@pytest.mark.parametrize("choice", CHOICES)
def test_values_by_which_a_network_chooses_are_proven(choice: str) -> None:
    network = open_network(Choosing(choice).eval(), IMAGE)
    family = next(one for one in network.channels.families if one.name == "q.weight")
    removed = set(family.roots[::2])
    assert network.rescalings
    narrow, whole = network.narrow(removed, is_wide=True), network.module.double()
    with torch.no_grad():
        for layer in (whole.q, whole.k):
            layer.weight[::2] = layer.bias[::2] = 0
    for module in (narrow, whole):
        module.choose = nn.Identity()
    found, wanted = (module(network.inputs[0]).detach() for module in (narrow, whole))
    assert float((found - wanted).abs().max()) <= TOLERANCE * float(wanted.abs().max())


class Searching(nn.Module):
    """Stops where nothing changes any more, and takes the largest of some numbers."""

    def __init__(self, scale: float = 1.0, noise: float = 0.0) -> None:
        super().__init__()
        self.scale, self.noise = scale, noise

    def forward(self, x: Tensor) -> Tensor:
        is_done = (x * 0 + self.noise) < 1e-6
        return (x * self.scale).argmax(-1) + is_done


def test_other_values_count_and_rounding_does_not() -> None:
    x = (torch.tensor([[0.2, 0.9, 0.1]], dtype=torch.float64),)
    wanted = find_answer(Searching(), x)
    assert find_answer(Searching(), x).difference(wanted) == 0.0
    assert find_answer(Searching(noise=1e-16), x).difference(wanted) == 0.0
    other = find_answer(Searching(scale=0.75), x)
    assert torch.equal(other.outputs[0], wanted.outputs[0])
    assert other.difference(wanted) == pytest.approx(0.25)


def test_values_of_other_shapes_are_not_compared() -> None:
    first, second = (torch.arange(count, dtype=torch.float64) for count in (3, 4))

    class Least(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.argmin()

    assert find_answer(Least(), (first,)).difference(find_answer(Least(), (second,))) == 0.0
