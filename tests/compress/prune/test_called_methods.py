"""Numbers of a module whose own method, and not its forward, is called by the module around it."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from compress.prune.api import PruneSettings, RatioGoal, prune_module  # noqa: E402
from compress.prune.select import WidthLimits  # noqa: E402

TOKENS = 5


class Places(nn.Module):
    """A bias per head and pair of tokens, computed of their distance."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.shape = (TOKENS, TOKENS, heads)
        self.mix = nn.Linear(1, heads)
        self.register_buffer("distance", torch.arange(TOKENS**2).float()[:, None] / TOKENS**2)

    def bias(self) -> torch.Tensor:
        flat = self.mix(self.distance).view(-1, self.heads)
        return flat.view(self.shape).permute(2, 0, 1)[None]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_width = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.places = Places(heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, tokens, _ = x.shape
        packed = self.qkv(x).view(n, tokens, self.num_heads, self.head_width * 3)
        q, k, v = packed.transpose(1, 2).chunk(3, dim=3)
        weights = (q @ k.transpose(2, 3) + self.places.bias()).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(n, tokens, -1))


def test_heads_leave_where_a_method_of_a_part_counts_them() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 32), Attention(32, 8), nn.Linear(32, 3)).eval()
    limits = WidthLimits(round_to=1, fewest=1)
    settings = PruneSettings(importance="magnitude", limits=limits)
    inputs = (torch.randn(1, TOKENS, 6),)
    result = prune_module(network, inputs, RatioGoal(0.5), settings)
    attention = result.module[1]
    assert "1.qkv.weight" not in {item.weight for item in result.left_alone}
    heads = attention.num_heads
    assert heads < 8
    assert attention.places.heads == heads
    assert list(attention.places.shape) == [TOKENS, TOKENS, heads]
    assert attention.qkv.out_features == 3 * heads * attention.head_width
