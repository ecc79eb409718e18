"""Tables of positions, as attention to a window adds them: their rows are no channels."""

import torch
from torch import Tensor, nn

from compress.prune.adapt import open_network

SIDE, HEADS, WIDTH = 4, 2, 16


class WindowAttention(nn.Module):
    """Attention of one window, with a learned bias for each relative position and head."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        self.embed = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.bias_table = nn.Parameter(torch.randn((2 * SIDE - 1) ** 2, HEADS))
        places = torch.stack(torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij"))
        steps = places.flatten(1)[:, :, None] - places.flatten(1)[:, None] + SIDE - 1
        self.register_buffer("index", (steps[0] * (2 * SIDE - 1) + steps[1]).flatten())
        self.project = nn.Linear(WIDTH, 8)

    def forward(self, image: Tensor) -> Tensor:
        tokens = self.embed(image).flatten(2).transpose(1, 2)
        batch, count, _ = tokens.shape
        query, key, value = (
            self.qkv(tokens).reshape(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        bias = self.bias_table[self.index].view(count, count, -1).permute(2, 0, 1)
        weights = (query @ key.transpose(-2, -1) + bias[None]).softmax(-1)
        return self.project((weights @ value).transpose(1, 2).reshape(batch, count, -1))


def test_the_rows_of_a_table_of_positions_are_not_listed_as_channels() -> None:
    channels = open_network(WindowAttention().eval(), (torch.randn(1, 3, 16, 16),)).channels
    places = {place for family in channels.families for place, _ in family.places}
    assert ("bias_table", 1) in places
    assert {item.weight for item in channels.left_alone} == {"project.weight"}


class Located(nn.Module):
    """A position that is computed, as DETR's sines are, is added to features."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner = nn.Conv2d(3, 12, 1), nn.Conv2d(12, 12, 1)
        self.last = nn.Conv2d(12, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        scale = 10000 ** (torch.arange(12, dtype=x.dtype) / 12)
        rows = torch.linspace(0, 1, x.shape[2], dtype=x.dtype)
        position = (rows[:, None] / scale).sin().t()[None, :, :, None]
        return self.last(self.inner(x + position).relu())


def test_what_a_computed_position_keeps_whole_is_said_plainly() -> None:
    channels = open_network(Located().eval(), (torch.randn(1, 3, 8, 8),)).channels
    reasons = {left.weight: left.reason for left in channels.left_alone}
    assert "that no layer makes" in reasons["first.weight"]
    assert "a computed position" in reasons["first.weight"]
    assert [family.name for family in channels.families] == ["inner.weight"]
