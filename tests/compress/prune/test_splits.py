"""Along which axis channels leave, where code views one as several."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from compress.prune.adapt import open_network  # noqa: E402
from compress.prune.prunable_network import TOLERANCE  # noqa: E402

IMAGE = (torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0)),)


class LinearAttention(nn.Module):
    """Linear attention whose heads no number counts; a grouped layer mixes a few channels each.

    EfficientViT (Cai et al., 2023). Narrower groups than there are groups leave as a whole, so that
    a channel of each head at a time cannot.
    """

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.dim = dim
        groups = 3 * width // dim
        self.packed = nn.Conv2d(width, 3 * width, 1)
        self.mixed = nn.Conv2d(3 * width, 3 * width, 1, groups=groups)
        self.project = nn.Conv2d(2 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, _, h, w = x.shape
        packed = self.packed(x)
        both = torch.cat((packed, self.mixed(packed)), 1)
        q, k, v = both.reshape(b, -1, 3 * self.dim, h * w).transpose(-1, -2).chunk(3, -1)
        v = nn.functional.pad(v, (0, 1), value=1.0)
        y = q.relu() @ (k.relu().transpose(-1, -2) @ v)
        y = y[..., :-1] / (y[..., -1:] + 1e-5)
        return x + self.project(y.transpose(-1, -2).reshape(b, -1, h, w))


class Attentions(nn.Module):
    """One attention with few wide heads, and one with as many heads as they are wide."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Conv2d(3, 16, 1)
        self.first = LinearAttention(16, 8)
        self.widen = nn.Conv2d(16, 32, 1)
        self.second = LinearAttention(32, 8)
        self.out = nn.Conv2d(32, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.second(self.widen(self.first(self.embed(x)))))


def test_whole_heads_leave_where_channels_of_each_cannot() -> None:
    network = open_network(Attentions().eval(), IMAGE)
    families = {family.name: family for family in network.channels.families}
    first, second = families["first.packed.weight"], families["second.packed.weight"]
    assert (len(first.roots), len(second.roots)) == (8, 4)
    assert {item.weight for item in network.channels.left_alone} == {"out.weight"}
    removed = set(first.roots[::3]) | set(second.roots[1:3])
    assert network.largest_difference(removed) <= TOLERANCE


def test_each_attention_keeps_what_it_names() -> None:
    network = open_network(Attentions().eval(), IMAGE)
    families = {family.name: family for family in network.channels.families}
    removed = {
        families["first.packed.weight"].roots[0],
        families["second.packed.weight"].roots[0],
    }
    narrow = network.narrow(removed)
    assert (narrow.first.dim, narrow.second.dim) == (7, 8)
    assert narrow.second.packed.out_channels == 3 * 3 * 8


class NamedWidth(nn.Module):
    """Attention that names the width of a head, and lets the heads be as many as they are."""

    def __init__(self, dim: int, *, is_fused: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dim, self.is_fused = dim, is_fused
        self.embed = nn.Linear(8, 32)
        self.q, self.k, self.v, self.project = (nn.Linear(32, 32) for _ in range(4))
        self.out = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.embed(x)
        parts = (layer(y) for layer in (self.q, self.k, self.v))
        q, k, v = (part.view(*y.shape[:2], -1, self.dim).transpose(1, 2) for part in parts)
        if self.is_fused:
            attended = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            attended = (q @ k.mT / math.sqrt(self.dim)).softmax(-1) @ v
        return self.out(y + self.project(attended.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("is_fused", [False, True])
def test_whole_heads_leave_where_their_width_is_named(*, is_fused: bool) -> None:
    tokens = (torch.rand(1, 5, 8, generator=torch.Generator().manual_seed(0)),)
    network = open_network(NamedWidth(8, is_fused=is_fused).eval(), tokens)
    families = {family.name: family for family in network.channels.families}
    assert {item.weight for item in network.channels.left_alone} == {"out.weight"}
    heads = families["q.weight"].roots
    assert len(heads) == 4
    assert network.largest_difference({heads[1], heads[3]}) <= TOLERANCE
    narrow = network.narrow({heads[1], heads[3]})
    assert (narrow.v.out_features, narrow.project.in_features, narrow.dim) == (16, 16, 8)
