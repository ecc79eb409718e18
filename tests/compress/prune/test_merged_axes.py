"""Of two axes that code views as one, the channels of one stay and those of the other leave."""

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from compress.prune.adapt import open_network  # noqa: E402
from compress.prune.cost import count_macs  # noqa: E402
from compress.prune.prunable_network import TOLERANCE  # noqa: E402

IMAGE = (torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)
EXPERTS, WIDTH, HIDDEN = 3, 12, 20


class EinsumExperts(nn.Module):
    """Experts as einsums, which multiply with all of them as one matrix."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.gate = nn.Conv2d(3, WIDTH, 1), nn.Linear(WIDTH, EXPERTS)
        self.first = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN))
        self.bias = nn.Parameter(torch.randn(EXPERTS, HIDDEN))
        self.second = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH))
        self.out = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        hidden = (torch.einsum("bnd,edh->bneh", tokens, self.first) + self.bias).relu()
        shares = self.gate(tokens).softmax(-1)
        each = torch.einsum("bneh,ehd,bne->bnd", hidden, self.second, shares)
        return self.out(tokens + each)


class Grid(nn.Module):
    """A layer that weighs functions of each feature on a grid (Kolmogorov-Arnold networks)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.register_buffer("grid", torch.linspace(-1, 1, 5))
        self.spline = nn.Parameter(torch.randn(outputs, inputs, 5))

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(-1, self.inputs)
        values = (-((x.unsqueeze(-1) - self.grid) ** 2)).exp()
        return values.flatten(1) @ self.spline.flatten(1).t()


class GridNetwork(nn.Module):
    """Two such layers behind a convolution."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.first, self.second = nn.Conv2d(3, 8, 1), Grid(8, 10), Grid(10, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(self.embed(x).permute(0, 2, 3, 1)))


def test_the_hidden_channels_of_experts_leave_from_einsums() -> None:
    network = open_network(EinsumExperts().eval(), IMAGE)
    families = {family.name: family for family in network.channels.families}
    assert {len(families[name].roots) for name in ("second", "first")} == {WIDTH, HIDDEN}
    assert {name for (name, _), _ in families["first"].places} == {"first", "bias", "second"}
    removed = set(families["first"].roots[::3]) | set(families["second"].roots[1::2])
    assert network.largest_difference(removed) <= TOLERANCE
    assert network.narrow(removed).first.shape == (EXPERTS, WIDTH // 2, HIDDEN - 7)
    kept = {item.weight: item.reason for item in network.channels.left_alone}
    assert "multiplied in" in kept["gate.weight"]


def test_all_experts_of_an_einsum_count() -> None:
    trace = open_network(EinsumExperts().eval(), IMAGE).channels.trace
    (layer,) = [one for one in trace.layers if one.weight == "first"]
    macs = count_macs(layer, layer.inputs.size, layer.outputs.size, whole_groups=False)
    assert macs == EXPERTS * 8 * 8 * WIDTH * HIDDEN


def test_features_on_a_grid_leave_with_all_points_of_it() -> None:
    network = open_network(GridNetwork().eval(), IMAGE)
    assert [(one.name, len(one.roots)) for one in network.channels.families] == [
        ("embed.weight", 8),
        ("first.spline", 10),
    ]
    removed = {root for family in network.channels.families for root in family.roots[::3]}
    assert network.largest_difference(removed) <= TOLERANCE
    assert network.narrow(removed).second.spline.shape == (2, 6, 5)
    assert network.narrow(removed).first.inputs == 5
