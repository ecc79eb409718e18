"""Weights that reach their layer through other operators: pruned with a proof, or listed."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import spectral_norm as old_spectral_norm
from torch.nn.utils import weight_norm as old_weight_norm
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.prune import random_unstructured

from artifacts.edits import apply_edits
from artifacts.errors import InputError
from artifacts.module_copy import copy_module
from compress.prune.adapt import open_network
from compress.prune.api import PruneData, PruneSettings, RatioGoal, prune_module
from compress.prune.importance.contract import ImportanceData, consumer_places
from compress.prune.importance.gradient import output_distance
from compress.prune.select import WidthLimits

IMAGE = (torch.randn(1, 3, 8, 8),)


class Standardized(nn.Conv2d):
    """Weights of mean 0 and deviation 1 per output channel."""

    def forward(self, x: Tensor) -> Tensor:
        mean = self.weight.mean((1, 2, 3), keepdim=True)
        deviation = self.weight.std((1, 2, 3), keepdim=True)
        weight = (self.weight - mean) / (deviation + 1e-5)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


class ByBatchNorm(nn.Conv2d):
    """The same by BatchNorm in training mode, as in NF-ResNets."""

    def forward(self, x: Tensor) -> Tensor:
        flat = self.weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(flat, None, None, training=True).reshape_as(self.weight)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


class StandardizedLinear(nn.Linear):
    """A matrix product with a computed weight."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight - self.weight.mean(1, keepdim=True), self.bias)


def chain(kind: type[nn.Conv2d]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), kind(8, 12, 3), nn.ReLU(), nn.Conv2d(12, 2, 1)
    ).eval()


@pytest.mark.parametrize("kind", [Standardized, ByBatchNorm])
def test_standardized_convolutions_lose_inputs_and_outputs(kind: type[nn.Conv2d]) -> None:
    network = open_network(chain(kind), IMAGE)
    families = network.channels.families
    assert [family.name for family in families] == ["0.weight", "2.weight"]
    removed = {root for family in families for root in family.roots[::3]}
    assert network.largest_difference(removed) < 1e-9


class MaskedLinear(nn.Linear):
    """A matrix product with a weight of which a buffer takes parts out."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("mask", (torch.rand(outputs, inputs) > 0.5).float())

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.mask, self.bias)


def normalized_linear(inputs: int, outputs: int) -> nn.Module:
    return weight_norm(nn.Linear(inputs, outputs))


@pytest.mark.parametrize("kind", [StandardizedLinear, MaskedLinear, normalized_linear])
def test_linear_layers_with_computed_weights_lose_inputs_and_outputs(kind) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), kind(8, 12), nn.ReLU(), nn.Linear(12, 3)).eval()
    tokens = (torch.randn(1, 5, 6),)
    pruning = open_network(network, tokens)
    families = pruning.channels.families
    assert [len(family.roots) for family in families] == [8, 12]
    removed = {root for family in families for root in family.roots[::3]}
    assert pruning.largest_difference(removed) < 1e-9
    narrow = apply_edits(copy_module(network), pruning.make_edits(removed))
    assert (narrow[1].in_features, narrow[1].out_features) == (5, 8)
    data = ImportanceData(batches=[tokens], losses=output_distance(), images=[tokens])
    settings = PruneSettings(limits=WidthLimits(round_to=1, fewest=1))
    result = prune_module(network, tokens, RatioGoal(0.4), settings, PruneData(importance=data))
    assert all(difference < 1e-9 for difference in result.differences)


def test_gradients_see_channels_that_a_computed_weight_takes_in() -> None:
    channels = open_network(chain(Standardized), IMAGE).channels
    assert ("2.weight", 1) in consumer_places(channels)


class Counted(nn.Conv2d):
    """Nothing is known of what its weight went through."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, torch.histc(self.weight, 48).reshape_as(self.weight))


class PerChannel(nn.Module):
    """A matrix for each of 6 channels, as a product and a sum of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 64, 5))

    def forward(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(-1) * self.weight).sum(2)


def test_every_weight_that_stays_whole_has_a_reason() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 8, 1),
        Counted(8, 6, 1),
        nn.Flatten(2),
        PerChannel(),
        nn.Linear(5, 4),
    ).eval()
    channels = open_network(network, IMAGE).channels
    alone = {(item.weight, item.channels): item.reason for item in channels.left_alone}
    assert "histc" in alone["1.weight", 8]
    assert {("3.weight", 5), ("3.weight", 64)} <= alone.keys()
    assert "no layer has it as its weight" in alone["3.weight", 5]
    with pytest.raises(InputError, match=r"1\.weight: 'histc' in '1'"):
        prune_module(network, IMAGE, RatioGoal(0.3), PruneSettings(importance="magnitude"))


class Padded(nn.Module):
    """Makes a constant of a shape of its own from a weight, for its type."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 1)
        self.scale = nn.Parameter(torch.rand(8))
        self.last = nn.Conv2d(12, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.cat([self.scale, self.scale.new_full((4,), 0.5)])
        features = torch.cat([self.first(x), x.new_ones(1, 4, *x.shape[2:])], 1)
        return self.last(features * scale[:, None, None])


def test_a_constant_of_another_tensors_type_keeps_no_channels() -> None:
    torch.manual_seed(0)
    network = open_network(Padded().eval(), IMAGE)
    (family,) = network.channels.families
    assert family.name == "first.weight"
    assert len(family.roots) == 8
    assert network.largest_difference(set(family.roots[::3])) < 1e-9


def test_the_input_of_a_weight_that_is_not_followed_says_so() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 1), Counted(8, 6, 1)).eval()
    reasons = {
        item.weight: item.reason for item in open_network(network, IMAGE).channels.left_alone
    }
    assert reasons["0.weight"] == "the weight of '1' is not followed"


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("normalize", [weight_norm, old_weight_norm])
def test_normalized_weights_lose_inputs_and_outputs(normalize) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 1),
        nn.ReLU(),
        normalize(nn.Conv2d(8, 12, 3)),
        nn.ReLU(),
        normalize(nn.Conv2d(12, 16, 1)),
        nn.Conv2d(16, 4, 1),
    ).eval()
    pruning = open_network(network, IMAGE)
    families = pruning.channels.families
    assert [len(family.roots) for family in families] == [8, 12, 16]
    removed = {root for family in families for root in family.roots[::3]}
    assert pruning.largest_difference(removed) < 1e-9
    assert any("weight_norm" in name for name in pruning.narrowed_statistics(removed))
    narrow = apply_edits(copy_module(network), pruning.make_edits(removed))
    again = apply_edits(copy_module(network), pruning.make_edits(removed))
    again.load_state_dict(narrow.state_dict())
    with torch.no_grad():
        assert torch.equal(again(IMAGE[0]), narrow(IMAGE[0]))


MASK = partial(random_unstructured, name="weight", amount=0.5)
WRAPPED = {
    "normalized": weight_norm,
    "normalized, old": old_weight_norm,
    "per output": partial(weight_norm, dim=1),
    "per output, old": partial(old_weight_norm, dim=1),
    "spectral": spectral_norm,
    "spectral, old": old_spectral_norm,
    "masked": MASK,
}


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_layers_keep_their_numbers_right(name: str) -> None:
    """Inputs and outputs leave, whole groups too, and each layer says what it has become."""
    torch.manual_seed(0)
    wrap, last = WRAPPED[name], nn.Conv2d(12, 12, 3, groups=12)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 1),
        wrap(nn.ConvTranspose2d(8, 12, 2, stride=2)),
        nn.ReLU(),
        last if name.startswith("per output") else wrap(last),
        nn.Conv2d(12, 4, 1),
    ).eval()
    pruning = open_network(network, IMAGE)
    families = pruning.channels.families
    assert [len(family.roots) for family in families] == [8, 12]
    removed = {root for family in families for root in family.roots[::3]}
    assert pruning.largest_difference(removed) < 1e-9
    narrow = apply_edits(copy_module(network), pruning.make_edits(removed))
    up, depthwise = narrow[1], narrow[3]
    narrow(IMAGE[0])
    assert (up.in_channels, up.out_channels) == (5, 8) == tuple(up.weight.shape[:2])
    assert (depthwise.in_channels, depthwise.out_channels, depthwise.groups) == (8, 8, 8)


def test_gradients_see_channels_that_a_masked_weight_takes_in() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 16, 1), MASK(nn.Conv2d(16, 16, 1)), nn.Conv2d(16, 2, 1))
    data = ImportanceData(batches=[IMAGE], losses=output_distance(), images=[IMAGE])
    result = prune_module(network.eval(), IMAGE, RatioGoal(0.4), data=PruneData(importance=data))
    assert [width.weight for width in result.widths] == ["0.weight", "1.weight_orig"]
    assert all(difference < 1e-9 for difference in result.differences)


class ShortNames(nn.Module):
    """Attention whose number of heads is called h, with more channels in a head than heads."""

    def __init__(self) -> None:
        super().__init__()
        self.h, self.width = 4, 16
        self.qkv, self.out = nn.Linear(12, 192), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        batch, places, _ = x.shape
        packed = self.qkv(x).reshape(batch, places, 3, self.h, self.width)
        q, k, v = packed.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return self.out(mixed.reshape(batch, places, self.h * self.width))


def test_attention_loses_heads_whatever_their_number_is_called() -> None:
    torch.manual_seed(0)
    pruning = open_network(ShortNames().eval(), (torch.randn(1, 6, 12),))
    (family,) = pruning.channels.families
    assert len(family.roots) == 4
    assert pruning.largest_difference({family.roots[1]}) < 1e-9
