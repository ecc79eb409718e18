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


class Packed(nn.Module):
    """Space to depth, features of each place and its channels' neighbours, and a convolution."""

    def __init__(self, gate: nn.Conv3d) -> None:
        super().__init__()
        self.first, self.gate = nn.Conv2d(3, 12, 1), gate
        self.last = nn.Conv2d(12 * 4 * gate.out_channels, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pixel_unshuffle(self.first(x).relu(), 2).unsqueeze(1)
        return self.last(self.gate(x).flatten(1, 2))


def test_channels_under_a_packing_convolution_leave() -> None:
    """PackNet's blocks (Guizilini et al., 2020) were left whole."""
    torch.manual_seed(0)
    network = open_network(Packed(nn.Conv3d(1, 4, 3, padding=1)).eval(), IMAGE)
    (family,) = network.channels.families
    assert len(family.roots) == 12
    removed = set(family.roots[::3])
    assert network.largest_difference(removed) < 1e-9
    assert network.narrowed_statistics(removed) == ("convolution over channels in 'gate'",)
    narrow = network.narrow(removed)
    assert narrow.first.weight.shape[0] == 8
    assert narrow.last.weight.shape[1] == 8 * 4 * 4


@pytest.mark.parametrize(
    "gate",
    [
        nn.Conv3d(1, 4, 3, padding=1, stride=(2, 1, 1)),
        nn.Conv3d(1, 4, 3, padding=(0, 1, 1)),
    ],
    ids=["with a stride", "without a border"],
)
def test_a_packing_convolution_of_another_length_keeps_them(gate: nn.Conv3d) -> None:
    module = Packed(gate).eval()
    with torch.no_grad():
        size = gate(torch.zeros(1, 1, 48, 4, 4)).flatten(1, 2).shape[1]
    module.last = nn.Conv2d(size, 2, 1)
    families = open_network(module, IMAGE).channels.families
    assert [family.name for family in families] == ["gate.weight"]


class Drawn(nn.Module):
    """A picture that a linear layer draws: its rows are places, and no channels."""

    def __init__(self) -> None:
        super().__init__()
        self.draw, self.read = nn.Linear(192, 64), nn.Conv2d(1, 8, 3, padding=1)
        self.last = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        picture = self.draw(x.flatten(1)).view(-1, 1, 8, 8)
        return self.last(self.read(picture).relu().mean((2, 3)))


def test_rows_of_a_picture_stay() -> None:
    torch.manual_seed(0)
    families = open_network(Drawn().eval(), IMAGE).channels.families
    assert [family.name for family in families] == ["read.weight"]
