"""Matrices of several experts in one parameter: what lies between them loses channels."""

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from compress.prune.adapt import open_network  # noqa: E402
from compress.prune.cost import count_macs  # noqa: E402

IMAGE = (torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)
EXPERTS, WIDTH, HIDDEN = 3, 12, 20


class Experts(nn.Module):
    """Two layers of each of three experts, weighed by a gate."""

    def __init__(self, *, is_turned: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.is_turned = is_turned
        first = (HIDDEN, WIDTH) if is_turned else (WIDTH, HIDDEN)
        self.embed, self.gate = nn.Conv2d(3, WIDTH, 1), nn.Linear(WIDTH, EXPERTS)
        self.first = nn.Parameter(torch.randn(EXPERTS, *first))
        self.bias = nn.Parameter(torch.randn(EXPERTS, 1, HIDDEN))
        self.second = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH))
        self.output = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        first = self.first.transpose(1, 2) if self.is_turned else self.first
        hidden = torch.baddbmm(self.bias, tokens.expand(EXPERTS, -1, -1), first).relu()
        each = torch.bmm(hidden, self.second)
        shares = self.gate(tokens).softmax(-1).squeeze(0).t().unsqueeze(-1)
        return self.output((each * shares).sum(0))


@pytest.mark.parametrize("is_turned", [False, True])
def test_the_hidden_channels_of_experts_leave(*, is_turned: bool) -> None:
    network = open_network(Experts(is_turned=is_turned).eval(), IMAGE)
    families = {family.name: family for family in network.channels.families}
    hidden = families["first"]
    assert len(hidden.roots) == HIDDEN
    assert {name for (name, _), _ in hidden.places} == {"first", "bias", "second"}
    removed = set(hidden.roots[::3]) | set(families["embed.weight"].roots[1::2])
    assert network.largest_difference(removed) < 1e-9
    narrow = network.narrow(removed)
    assert narrow.second.shape == (EXPERTS, HIDDEN - 7, WIDTH)
    assert narrow.first.shape[1 + is_turned] == WIDTH // 2


def test_all_experts_count() -> None:
    channels = open_network(Experts(is_turned=False).eval(), IMAGE).channels
    (layer,) = [one for one in channels.trace.layers if one.weight == "first"]
    macs = count_macs(layer, layer.inputs.size, layer.outputs.size, whole_groups=False)
    assert macs == EXPERTS * 8 * 8 * WIDTH * HIDDEN
