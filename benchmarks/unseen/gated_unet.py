"""A ResNet with squeeze-and-excite and a U-Net with attention gates, all written by hand."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.fresh_networks.losses import classes_loss, depth_loss, heat_loss
from benchmarks.fresh_networks.parts import ConvNorm, rare
from benchmarks.fresh_networks.scenes import Targets
from perception.scene.sample import BOX_CLASSES, MASK_CLASSES

WIDTHS = (24, 40, 72, 128)
STEEP = 8.0
"""How much a step of the logarithm of depth tilts a surface."""


class Squeeze(nn.Module):
    """Squeeze-and-excite (Hu et al., 2018) with a sigmoid."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width // 4)
        self.outer = nn.Linear(width // 4, width)

    def forward(self, value: Tensor) -> Tensor:
        """Returns the map, its channels weighed."""
        gates = self.outer(F.relu(self.inner(value.mean((2, 3))))).sigmoid()
        return value * gates[:, :, None, None]


class Block(nn.Module):
    """Two convolutions with squeeze-and-excite beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            ConvNorm(inputs, outputs, stride=stride, act=nn.ReLU),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            Squeeze(outputs),
        )
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.AvgPool2d(stride, stride) if stride > 1 else nn.Identity(),
                nn.Conv2d(inputs, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, value: Tensor) -> Tensor:
        """Returns a map, smaller by the stride."""
        return F.relu(self.body(value) + self.shortcut(value))


class Gate(nn.Module):
    """Attention gate of a skip (Oktay et al., 2018, "Attention U-Net")."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_skip = nn.Conv2d(width, width // 2, 1, bias=False)
        self.of_value = nn.Conv2d(width, width // 2, 1)
        self.join = nn.Conv2d(width // 2, 1, 1)

    def forward(self, value: Tensor, skip: Tensor) -> Tensor:
        """Returns the skip, its places weighed."""
        return skip * self.join(F.relu(self.of_value(value) + self.of_skip(skip))).sigmoid()


class GatedUnet(nn.Module):
    """Classes, depth by its exponent, normals of unit length, heat."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            ConvNorm(3, 16, stride=2, act=nn.ReLU), ConvNorm(16, WIDTHS[0], act=nn.ReLU)
        )
        pairs = list(pairwise(WIDTHS))
        self.down = nn.ModuleList(
            nn.Sequential(Block(inputs, outputs, 2), Block(outputs, outputs, 1))
            for inputs, outputs in pairs
        )
        pairs.reverse()
        self.enlarge = nn.ModuleList(
            nn.ConvTranspose2d(outputs, inputs, 2, 2) for inputs, outputs in pairs
        )
        self.gates = nn.ModuleList(Gate(inputs) for inputs, _ in pairs)
        self.join = nn.ModuleList(
            nn.Sequential(
                ConvNorm(2 * inputs, inputs, act=nn.LeakyReLU),
                ConvNorm(inputs, inputs, act=nn.LeakyReLU),
            )
            for inputs, _ in pairs
        )
        self.classes = nn.ConvTranspose2d(WIDTHS[0], len(MASK_CLASSES), 4, 2, 1)
        self.depth = nn.Sequential(
            ConvNorm(WIDTHS[0], 16, act=nn.ELU), nn.Conv2d(16, 1, 3, padding=1)
        )
        self.normals = nn.Sequential(
            ConvNorm(WIDTHS[0], 16, act=nn.ELU), nn.Conv2d(16, 3, 3, padding=1)
        )
        self.heat = nn.Sequential(
            ConvNorm(WIDTHS[2], 32, act=nn.ReLU), rare(nn.Conv2d(32, len(BOX_CLASSES), 1))
        )

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Returns classes, depth, normals and heat."""
        value = self.stem((image - 0.5) / 0.25)
        skips = []
        for down in self.down:
            skips.append(value)
            value = down(value)
        maps = []
        for enlarge, gate, join in zip(self.enlarge, self.gates, self.join, strict=True):
            value, skip = enlarge(value), skips.pop()
            value = join(torch.cat([value, gate(value, skip)], 1))
            maps.append(value)
        return {
            "classes": self.classes(value),
            "depth": self.depth(value).exp(),
            "normals": F.normalize(self.normals(value), dim=1),
            "heat": self.heat(maps[0]).sigmoid(),
        }

    @staticmethod
    def lesson(outputs: dict[str, Tensor], targets: Targets) -> Tensor:
        """Returns the loss; normals are those of the surface of the logarithm of depth."""
        log_depth = F.avg_pool2d(targets.log_depth, 2)
        down = F.pad(log_depth.diff(dim=2), (0, 0, 0, 1)) * STEEP
        right = F.pad(log_depth.diff(dim=3), (0, 1)) * STEEP
        known = F.normalize(torch.cat([right, down, torch.ones_like(down)], 1), dim=1)
        return (
            classes_loss(outputs["classes"], targets)
            + depth_loss(outputs["depth"], targets)
            + (1 - (outputs["normals"] * known).sum(1)).mean()
            + heat_loss(outputs["heat"], targets)
        )
