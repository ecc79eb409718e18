"""A two-head road network of the kind that breaks other pruners, written for these tests.

An ESP-style encoder (Mehta et al., 2018): a reduced feature map through parallel dilated
convolutions, summed up hierarchically, concatenated, normalized after the concatenation; PReLU;
spatial and channel attention; two decoders of transposed convolutions, one per head.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class NormPReLU(nn.Module):
    """BatchNorm and PReLU over channels that come from a concatenation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, eps=1e-3)
        self.act = nn.PReLU(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(x))


class DilatedBlock(nn.Module):
    """Reduce, convolve with dilations 1, 2, 4, 8, 16, add up pairwise, concatenate."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        part = outputs // 5
        first = outputs - 4 * part
        self.reduce = nn.Conv2d(
            inputs, part, 3 if stride > 1 else 1, stride, stride // 2, bias=False
        )
        self.branches = nn.ModuleList(
            nn.Conv2d(part, first if d == 1 else part, 3, padding=d, dilation=d, bias=False)
            for d in (1, 2, 4, 8, 16)
        )
        self.out = NormPReLU(outputs)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        reduced = self.reduce(x)
        d1, d2, d4, d8, d16 = (branch(reduced) for branch in self.branches)
        add2 = d4 + d2
        add3 = add2 + d8
        joined = torch.cat([d1, d2, add2, add3, add3 + d16], 1)
        return self.out(x + joined if self.is_residual else joined)


class SpatialAttention(nn.Module):
    """A mask from the mean and the largest value over the channels (CBAM)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pooled = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return x * torch.sigmoid(self.conv(pooled))


class ChannelAttention(nn.Module):
    """A factor per channel from a bottleneck of two fully connected layers."""

    def __init__(self, channels: int, reduction: int = 4) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, channels // reduction)
        self.fc2 = nn.Linear(channels // reduction, channels)

    def forward(self, x: Tensor) -> Tensor:
        pooled = F.adaptive_avg_pool2d(x, 1).flatten(1)
        weights = torch.sigmoid(self.fc2(F.relu(self.fc1(pooled))))
        return x * weights.view(x.shape[0], x.shape[1], 1, 1)


class Decoder(nn.Module):
    """Two transposed convolutions with a skip connection, and the head's last layer."""

    def __init__(self, inputs: int, skip: int, classes: int) -> None:
        super().__init__()
        self.up1 = nn.ConvTranspose2d(inputs, 32, 2, stride=2, bias=False)
        self.mix = nn.Conv2d(32 + skip, 32, 3, padding=1, bias=False)
        self.norm1 = NormPReLU(32)
        self.up2 = nn.ConvTranspose2d(32, 16, 2, stride=2, bias=False)
        self.norm2 = NormPReLU(16)
        self.output = nn.ConvTranspose2d(16, classes, 2, stride=2)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = self.norm1(self.mix(torch.cat([self.up1(x), skip], 1)))
        return self.output(self.norm2(self.up2(x)))


class EspRoadNetwork(nn.Module):
    """Drivable area and lane markings from one encoder."""

    output_names = ("drivable", "lanes")

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), NormPReLU(16))
        self.mix1 = NormPReLU(16 + 3)
        self.down1 = DilatedBlock(16 + 3, 64, stride=2)
        self.level1 = nn.ModuleList(DilatedBlock(64, 64) for _ in range(2))
        self.mix2 = NormPReLU(128 + 3)
        self.down2 = DilatedBlock(128 + 3, 128, stride=2)
        self.level2 = nn.ModuleList(DilatedBlock(128, 128) for _ in range(2))
        self.mix3 = NormPReLU(256)
        self.squeeze = nn.Conv2d(256, 64, 1, bias=False)
        self.channel_attention = ChannelAttention(64)
        self.spatial_attention = SpatialAttention()
        self.drivable = Decoder(64, 131, 2)
        self.lanes = Decoder(64, 131, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        half = F.avg_pool2d(x, 3, 2, 1)
        quarter = F.avg_pool2d(half, 3, 2, 1)
        start = self.mix1(torch.cat([self.stem(x), half], 1))
        first = self.down1(start)
        deep = first
        for block in self.level1:
            deep = block(deep)
        skip = self.mix2(torch.cat([deep, first, quarter], 1))
        second = self.down2(skip)
        deep = second
        for block in self.level2:
            deep = block(deep)
        features = self.squeeze(self.mix3(torch.cat([second, deep], 1)))
        features = self.spatial_attention(self.channel_attention(features))
        return self.drivable(features, skip), self.lanes(features, skip)


def build_esp_network(seed: int = 0) -> EspRoadNetwork:
    """Returns the network with random weights and BatchNorm statistics that are not trivial."""
    generator = torch.Generator().manual_seed(seed)
    network = EspRoadNetwork().eval()
    for name, tensor in network.state_dict().items():
        if tensor.ndim > 1:
            fan = tensor[0].numel()
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * (2 / fan) ** 0.5)
        elif name.endswith(("norm.weight", "running_var")):
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
        elif name.endswith(("norm.bias", "running_mean")):
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)
    return network
