"""Heads that only training uses are narrowed with what they read, or a warning names them."""

import pytest
import torch
from torch import Tensor, nn

from artifacts.edits import apply_edits
from artifacts.module_copy import copy_module
from artifacts.module_run import run_module
from compress.prune.adapt import open_network
from compress.prune.analysis.api import output_tensors, repeat_sample
from compress.prune.api import PruneSettings, RatioGoal, prune_module
from compress.prune.prunable_network import TOLERANCE
from compress.prune.reference import run_zeroed

IMAGE = (torch.randn(1, 3, 8, 8),)


class Supervised(nn.Module):
    """A further head reads the trunk, or its input, in training mode.

    Args:
        reads_trunk: whether it reads the trunk.
        names_width: whether the code of that head names the trunk's width.
    """

    def __init__(self, *, reads_trunk: bool = True, names_width: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU())
        self.head = nn.Conv2d(32, 2, 1)
        self.auxiliary = nn.Sequential(
            nn.Conv2d(32 if reads_trunk else 3, 16, 1), nn.BatchNorm2d(16), nn.Conv2d(16, 4, 1)
        )
        self.reads_trunk = reads_trunk
        self.names_width = names_width

    def forward(self, x: Tensor) -> list[Tensor]:
        features = self.trunk(x)
        outputs = [self.head(features)]
        if self.training:
            read = features if self.reads_trunk else x
            if self.names_width:
                read = read.reshape(-1, 32, 6, 6)
            outputs.append(self.auxiliary(read))
        return outputs


class Grouped(nn.Module):
    """In training mode a depthwise convolution and a sum of two features of the trunk."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 1)
        self.head = nn.Conv2d(16, 2, 1)
        self.depthwise, self.auxiliary = nn.Conv2d(16, 16, 3, groups=16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        first = self.first(x)
        second = self.second(first)
        if not self.training:
            return (self.head(second),)
        pooled = self.depthwise(first + second).mean((2, 3))
        return self.head(second), self.auxiliary(pooled)


@pytest.mark.parametrize("build", [Supervised, Grouped])
def test_heads_of_training_are_narrowed_and_compute_what_they_did(build: type[nn.Module]) -> None:
    network = open_network(build().eval(), IMAGE)
    removed = {root for family in network.channels.families for root in family.roots[::3]}
    assert removed
    assert network.largest_difference(removed) < TOLERANCE
    batch = repeat_sample(network.inputs)
    training = copy_module(network.module).double().train()
    wanted = run_zeroed(training, network.channels, removed, batch).outputs
    narrow = apply_edits(training, network.make_edits(removed))
    with torch.no_grad():
        found = output_tensors(run_module(narrow, batch))
    assert len(found) == 2
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).abs().max()) < TOLERANCE * float(other.abs().max())


def test_a_sum_that_only_training_makes_ties_what_it_adds() -> None:
    (family,) = open_network(Grouped().eval(), IMAGE).channels.families
    assert {name for (name, _), _ in family.places} >= {"first.weight", "second.weight"}


class Pooled(Supervised):
    """A head that BatchNorm keeps from training on a single sample."""

    def forward(self, x: Tensor) -> list[Tensor]:
        features = self.trunk(x)
        outputs = [self.head(features)]
        if self.training:
            outputs.append(self.auxiliary(features.mean((2, 3), keepdim=True)))
        return outputs


class OneSample(Supervised):
    """Its code takes one sample only: of two, it would join the channels."""

    def forward(self, x: Tensor) -> list[Tensor]:
        features = self.trunk(x).view(1, self.head.in_channels, 6, -1)
        outputs = [self.head(features)]
        if self.training:
            outputs.append(self.auxiliary(features))
        return outputs


@pytest.mark.parametrize("build", [Pooled, OneSample])
def test_training_is_followed_on_as_many_samples_as_it_takes(build: type[nn.Module]) -> None:
    network = open_network(build().eval(), IMAGE)
    (family,) = network.channels.families
    assert ("auxiliary.0.weight", 1) in dict(family.places)
    assert len(family.roots) == 32
    assert network.largest_difference(set(family.roots[::3])) < TOLERANCE


def test_what_training_adds_costs_no_inference() -> None:
    trace = open_network(Supervised().eval(), IMAGE).channels.trace
    assert [layer.weight for layer in trace.layers] == ["trunk.0.weight", "head.weight"]


@pytest.mark.parametrize("options", [{}, {"reads_trunk": False}, {"names_width": True}])
def test_a_network_that_no_longer_trains_is_named(options: dict[str, bool]) -> None:
    network = Supervised(**options).eval()
    settings = PruneSettings(importance="magnitude")
    result = prune_module(network, IMAGE, RatioGoal(0.5), settings)
    warned = [note for note in result.notes if "auxiliary.0.weight" in note and "--protect" in note]
    is_lost = "names_width" in options
    assert len(warned) == is_lost
    assert network.trunk[1].num_batches_tracked == 0
    assert result.module.trunk[0].out_channels == 16
    if is_lost:
        with pytest.raises(RuntimeError):
            result.module.train()(*repeat_sample(IMAGE))
    else:
        assert len(result.module.train()(*repeat_sample(IMAGE))) == 2


def test_a_network_that_only_trains_with_targets_is_pruned_for_inference() -> None:
    class Detector(Supervised):
        def forward(self, x: Tensor, targets: Tensor | None = None) -> list[Tensor]:
            if self.training and targets is None:
                raise ValueError("targets should not be None in training mode")
            return super().forward(x)

    network = open_network(Detector().eval(), IMAGE)
    (family,) = network.channels.families
    assert network.largest_difference(set(family.roots[::3])) < TOLERANCE


def test_a_weight_that_is_not_used_says_so() -> None:
    channels = open_network(Supervised().eval(), IMAGE).channels
    reasons = {item.weight: item.reason for item in channels.left_alone}
    assert "does not use it in evaluation mode" in reasons["auxiliary.0.weight"]
    assert "'output_0'" in reasons["head.weight"]
