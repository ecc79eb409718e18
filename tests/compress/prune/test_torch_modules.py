"""Modules of torch whose numbers follow a narrower input."""

import pytest
import torch
from torch import Tensor, nn

from artifacts.edits import apply_edits
from compress.prune.adapt import open_network
from compress.prune.importance.contract import consumer_places
from compress.prune.prunable_network import PrunableNetwork

IMAGE = (torch.randn(1, 3, 16, 16),)


class Recurrent(nn.Module):
    """A trunk whose columns are a sequence."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.trunk = nn.Conv2d(3, 12, 4, 4)
        self.rnn = kind(12, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.output = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.rnn(self.trunk(x).mean(2).transpose(1, 2))[0])


class Cell(nn.Module):
    """A recurrent cell, called once."""

    def __init__(self, kind: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.trunk, self.rnn, self.output = nn.Conv2d(3, 12, 4, 4), kind(12, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found = self.rnn(self.trunk(x).mean((2, 3)))
        return self.output(found[0] if isinstance(found, tuple) else found)


class CrossAttention(nn.Module):
    """Queries of one width look at keys and values of another."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(1, 5, 8))
        self.trunk = nn.Conv2d(3, 12, 4, 4)
        self.attention = nn.MultiheadAttention(8, 2, kdim=12, vdim=12, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.trunk(x).flatten(2).transpose(1, 2)
        return self.attention(self.queries, tokens, tokens)[0]


def narrow_trunk(network: PrunableNetwork) -> nn.Module:
    """Takes three channels of the trunk out, and proves it."""
    family = next(item for item in network.channels.families if item.name == "trunk.weight")
    removed = set(family.roots[:3])
    assert network.largest_difference(removed) < 1e-9
    return apply_edits(network.module, network.make_edits(removed))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_takes_a_narrower_input(kind: type[nn.RNNBase]) -> None:
    narrower = narrow_trunk(open_network(Recurrent(kind).eval(), IMAGE))
    assert narrower.rnn.input_size == 9


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_recurrent_cell_takes_a_narrower_input(kind: type[nn.RNNCellBase]) -> None:
    narrower = narrow_trunk(open_network(Cell(kind).eval(), IMAGE))
    assert narrower.rnn.input_size == 9


def test_attention_takes_narrower_keys_and_values() -> None:
    narrower = narrow_trunk(open_network(CrossAttention().eval(), IMAGE))
    assert (narrower.attention.kdim, narrower.attention.vdim) == (9, 9)


def test_the_shape_of_an_rms_norm_follows() -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.RMSNorm(12), nn.Linear(12, 20), nn.SiLU(), nn.Linear(20, 12))
    network = nn.Sequential(nn.Linear(8, 12), block, nn.RMSNorm(12), nn.Linear(12, 3)).eval()
    pruning = open_network(network, (torch.randn(1, 5, 8),))
    assert [family.count for family in pruning.channels.families] == [12, 20, 12]
    removed = {root for family in pruning.channels.families for root in family.roots[::3]}
    assert pruning.largest_difference(removed) < 1e-9
    narrow = apply_edits(network, pruning.make_edits(removed))
    assert narrow[2].normalized_shape == (8,)


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_the_shape_of_a_norm_without_weights_follows(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    norms = [kind(12, elementwise_affine=False) for _ in range(2)]
    layers = (nn.Linear(8, 12), norms[0], nn.SiLU(), norms[1], nn.Linear(12, 3))
    pruning = open_network(nn.Sequential(*layers).eval(), (torch.randn(1, 5, 8),))
    (family,) = pruning.channels.families
    removed = set(family.roots[::3])
    assert pruning.largest_difference(removed) < 1e-9
    narrow = apply_edits(pruning.module, pruning.make_edits(removed))
    assert [narrow[index].normalized_shape for index in (1, 3)] == [(8,), (8,)]


class Decoded(nn.Module):
    """Queries that attend to themselves and to features: PyTorch's layers with packed weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.queries = nn.Conv2d(3, 16, 2, stride=2), nn.Embedding(5, 16)
        options = {"dim_feedforward": 24, "batch_first": True, "norm_first": True}
        self.encoder = nn.TransformerEncoderLayer(16, 4, **options)
        self.decoder = nn.TransformerDecoderLayer(16, 4, **options)
        self.output = nn.Linear(16, 3)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, x: Tensor) -> Tensor:
        memory = self.encoder(self.embed(x).flatten(2).transpose(1, 2))
        return self.output(self.decoder(self.queries.weight[None], memory))


def test_heads_leave_with_the_channels_around_them() -> None:
    network = open_network(Decoded().eval(), IMAGE)
    families = {family.name: family for family in network.channels.families}
    stream = families["embed.weight"]
    assert (len(stream.roots), stream.width) == (4, 4)
    for removed in (set(stream.roots[1:2]), set(stream.roots[:3])):
        assert network.largest_difference(removed) < 1e-9
        narrow = apply_edits(network.module.__class__().eval(), network.make_edits(removed))
        heads = 4 - len(removed)
        for part in narrow.modules():
            if isinstance(part, nn.MultiheadAttention):
                assert (part.num_heads, part.embed_dim) == (heads, 4 * heads)
                assert part.in_proj_weight.shape == (12 * heads, 4 * heads)
        assert narrow(*IMAGE).shape == (1, 5, 3)


def test_the_width_of_a_whole_transformer_follows() -> None:
    class Translated(nn.Module):
        """Two sequences through encoder and decoder."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(6, 16), nn.Linear(6, 16)
            self.transformer = nn.Transformer(16, 4, 1, 1, 20, batch_first=True)
            self.output = nn.Linear(16, 3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.output(self.transformer(self.first(x), self.second(y)))

    inputs = torch.randn(1, 5, 6), torch.randn(1, 4, 6)
    network = open_network(Translated().eval(), inputs)
    stream = next(one for one in network.channels.families if one.name == "first.weight")
    removed = set(stream.roots[1:2])
    assert network.largest_difference(removed) < 1e-9
    narrow = apply_edits(network.module, network.make_edits(removed))
    assert narrow.transformer.d_model == 12 == narrow.first.out_features


def test_the_shape_that_an_unflattening_makes_follows() -> None:
    torch.manual_seed(0)
    layers = (
        nn.Linear(8, 192),
        nn.ReLU(),
        nn.Unflatten(1, (12, 4, 4)),
        nn.ConvTranspose2d(12, 3, 2),
    )
    network = open_network(nn.Sequential(*layers).eval(), (torch.randn(1, 8),))
    (family,) = network.channels.families
    assert (family.count, family.width) == (12, 16)
    removed = set(family.roots[::3])
    assert network.largest_difference(removed) < 1e-9
    narrow = apply_edits(network.module, network.make_edits(removed))
    assert narrow[2].unflattened_size == (8, 4, 4)


def test_packed_projections_cost_what_they_multiply() -> None:
    channels = open_network(Decoded().eval(), IMAGE).channels
    packed = [layer for layer in channels.trace.layers if layer.weight.endswith("in_proj_weight")]
    rows = sum(layer.outputs.size for layer in packed)
    assert rows == 3 * 3 * 16
    places = {name for name, axis in consumer_places(channels) if axis == 0}
    assert not any(name.endswith("in_proj_weight") for name in places)
