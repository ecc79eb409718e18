"""A network is copied whatever its forward passes leave on it."""

import pytest
import torch
from torch import nn
from torch.nn.utils import spectral_norm, weight_norm

from artifacts.module_copy import copy_module, share_values


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm])
def test_weights_that_a_forward_pass_computes(norm) -> None:
    network = nn.Sequential(norm(nn.Conv2d(3, 4, 1)), nn.ReLU())
    x = torch.randn(1, 3, 4, 4)
    network(x).sum().backward()
    network.eval()
    copy = copy_module(network)
    assert torch.equal(copy(x), network(x))
    with torch.no_grad():
        for weight in copy.parameters():
            weight.zero_()
    assert copy(x).abs().max() != network(x).abs().max()
    network(x).sum().backward()


def test_values_in_common_take_no_memory_and_may_be_replaced() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Linear(2, 2)).eval()
    network[2].weight = nn.Parameter(network[2].weight, requires_grad=False)
    other = share_values(network)
    assert all(
        one is not two
        and one.data_ptr() == two.data_ptr()
        and one.requires_grad == two.requires_grad
        for one, two in zip(network.parameters(), other.parameters(), strict=True)
    )
    assert other[1].running_mean.data_ptr() != network[1].running_mean.data_ptr()
    other[0].weight.data = torch.zeros(2, 3, 1, 1)
    assert network[0].weight.shape == (4, 3, 1, 1)
    assert network[0].weight.abs().max() > 0


def test_values_in_common_leave_tied_parameters_tied() -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    other = share_values(network)
    assert other[1].weight is other[0].weight is not network[0].weight


class Stateful(nn.Module):
    """A module with values of every kind, and with copying rules of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.GRU(3, 4)
        self.twin = self.part
        self.sizes, self.names, self.seen = [1, 2], {"part": self.part}, set()
        self.same = self.seen
        self.by_part = {self.part: "part"}
        self.restored = False

    def __setstate__(self, state):
        super().__setstate__(state)
        self.restored = isinstance(self.part.weight_ih_l0, nn.Parameter)


class Ruled(nn.Linear):
    """A module that says itself how it is copied."""

    def __deepcopy__(self, memo):
        return Ruled(7, 7)


def test_what_modules_keep_is_copied_and_stays_connected() -> None:
    network = nn.Sequential(Stateful(), Ruled(2, 2))
    network.append(network[0].part)
    copy = copy_module(network)
    first, part = copy[0], copy[0].part
    assert part is not network[0].part
    assert part is first.twin is copy[2] is first.names["part"]
    assert list(first.by_part) == [part]
    assert first.sizes == [1, 2]
    assert first.sizes is not network[0].sizes
    assert first.seen is first.same is not network[0].seen
    assert first.restored
    assert copy[1].in_features == 7
    assert torch.equal(part.weight_ih_l0, network[0].part.weight_ih_l0)
    assert part.weight_ih_l0 is not network[0].part.weight_ih_l0


def test_what_is_shared_stays_the_same_with_all_its_parts() -> None:
    teacher = nn.Sequential(nn.Linear(2, 2))
    lesson = nn.ModuleDict({"teacher": teacher, "student": nn.Linear(2, 2)})
    copy = copy_module(lesson, [teacher])
    assert copy["teacher"] is teacher
    assert copy["teacher"][0] is teacher[0]
    assert copy["student"] is not lesson["student"]


class Hooked(nn.Module):
    """Reads a feature that a hook keeps: the hook is a function that closes over the network."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1)
        self.features: list[torch.Tensor] = []
        self.trunk.register_forward_hook(lambda *call: self.features.append(call[-1]))

    def forward(self, x):
        self.features.clear()
        self.trunk(x)
        return self.head(self.features[-1])


def test_a_hook_that_closes_over_the_network_closes_over_its_copy() -> None:
    network = Hooked().eval()
    copy = copy_module(network)
    x = torch.randn(1, 3, 4, 4)
    assert torch.equal(copy(x), network(x))
    network.features.clear()
    copy_module(copy)(x)
    assert not network.features
