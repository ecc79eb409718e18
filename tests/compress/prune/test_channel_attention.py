"""Attention over channels whose weights are the same for all: they leave, and it goes on."""

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from compress.prune.adapt import open_network  # noqa: E402
from compress.prune.prunable_network import PrunableNetwork  # noqa: E402

IMAGE = (torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)


class Efficient(nn.Module):
    """A gate from each channel's mean and those beside it (Wang et al., 2020)."""

    def __init__(self, gate: nn.Conv1d) -> None:
        super().__init__()
        self.first, self.gate, self.last = nn.Conv2d(3, 16, 1), gate, nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        pooled = x.mean((2, 3)).unsqueeze(1).expand(-1, self.gate.in_channels, -1)
        return self.last(x * self.gate(pooled)[:, 0, : x.shape[1]].sigmoid()[:, :, None, None])


def open_seeded(gate: nn.Conv1d) -> PrunableNetwork:
    torch.manual_seed(0)
    return open_network(Efficient(gate).eval(), IMAGE)


@pytest.mark.parametrize(("kernel", "dilation"), [(3, 1), (5, 1), (3, 2)])
def test_channels_beside_each_other_leave(kernel: int, dilation: int) -> None:
    padding = dilation * (kernel - 1) // 2
    network = open_seeded(nn.Conv1d(1, 1, kernel, padding=padding, dilation=dilation))
    (family,) = network.channels.families
    assert len(family.roots) == 16
    removed = set(family.roots[::3])
    assert network.largest_difference(removed) < 1e-9
    assert network.narrowed_statistics(removed) == ("convolution over channels in 'gate'",)
    with torch.no_grad():
        kept = [index for index in range(16) if index % 3]
        x = network.module.first(IMAGE[0]).relu()[:, kept]
        gates = network.module.gate(x.mean((2, 3)).unsqueeze(1))
        wanted = F.conv2d(
            x * gates[:, 0].sigmoid()[:, :, None, None],
            network.module.last.weight[:, kept],
            network.module.last.bias,
        )
        torch.testing.assert_close(network.narrow(removed)(*IMAGE), wanted)


@pytest.mark.parametrize(
    "gate",
    [nn.Conv1d(2, 2, 3, padding=1), nn.Conv1d(1, 1, 4, padding=2)],
    ids=["of several channels", "of another length"],
)
def test_other_convolutions_along_channels_keep_them(gate: nn.Conv1d) -> None:
    network = open_seeded(gate)
    assert not network.channels.families
    reasons = {item.reason for item in network.channels.left_alone}
    assert any("convolves across them" in reason for reason in reasons)
