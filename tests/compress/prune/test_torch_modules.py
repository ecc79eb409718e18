"""Modules of torch whose numbers follow a narrower input."""

import pytest
import torch
from torch import Tensor, nn

from artifacts.edits import apply_edits
from compress.prune.adapt import PrunableNetwork, open_network

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
