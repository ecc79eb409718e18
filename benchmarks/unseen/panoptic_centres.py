"""A ConvNeXt V2 written by hand with a semantic pyramid and the heads of Panoptic-DeepLab."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.fresh_networks.losses import classes_loss, depth_loss, heat_loss
from benchmarks.fresh_networks.parts import Standardize, rare
from benchmarks.fresh_networks.scenes import FARTHEST_M, STRIDE, Targets
from perception.scene.sample import BOX_CLASSES, MASK_CLASSES

WIDTHS, DEPTHS, NECK = (32, 64, 128), (2, 2, 3), 64
FARTHEST_CELLS = 6.0


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of a map."""

    def forward(self, value: Tensor) -> Tensor:
        """Returns a map of the same shape."""
        return super().forward(value.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """ConvNeXt V2's block with global response normalization (Woo et al., 2023)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gain = nn.Parameter(torch.full((4 * width,), 0.1))
        self.offset = nn.Parameter(torch.zeros(4 * width))

    def forward(self, value: Tensor) -> Tensor:
        """Returns a map of the same shape."""
        inner = F.gelu(self.inner(self.norm(self.depthwise(value).permute(0, 2, 3, 1))))
        strength = torch.linalg.vector_norm(inner, dim=(1, 2), keepdim=True)
        share = strength / (strength.mean(-1, keepdim=True) + 1e-6)
        inner = inner + self.gain * (inner * share) + self.offset
        return value + self.outer(inner).permute(0, 3, 1, 2)


class PanopticCentres(nn.Module):
    """Classes, centres, the way to the centre, and depth as a mean over bins of its inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.standardize = Standardize()
        stages, inputs = [], 3
        for index, (width, depth) in enumerate(zip(WIDTHS, DEPTHS, strict=True)):
            size = 4 if index == 0 else 2
            shrink = nn.Conv2d(inputs, width, size, size)
            norms = [shrink, ChannelNorm(width)] if index == 0 else [ChannelNorm(inputs), shrink]
            stages.append(nn.Sequential(*norms, *(Block(width) for _ in range(depth))))
            inputs = width
        self.stages = nn.ModuleList(stages)
        self.lateral = nn.ModuleList(nn.Conv2d(width, NECK, 1) for width in WIDTHS)
        self.semantic = nn.ModuleList(_enlarging(level) for level in range(3))
        self.classes = nn.Conv2d(NECK, len(MASK_CLASSES), 1)
        self.instances = nn.Sequential(_grouped(NECK), _grouped(NECK))
        self.centres = rare(nn.Conv2d(NECK, len(BOX_CLASSES), 1))
        self.offsets = nn.Conv2d(NECK, 2, 1)
        self.bins = nn.Conv2d(NECK, 16, 1)
        self.register_buffer("inverse_m", torch.linspace(1 / FARTHEST_M, 0.5, 16).view(1, -1, 1, 1))

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Returns classes, centres, offsets in cells and depth in metres."""
        value, maps = self.standardize(image), []
        for stage in self.stages:
            value = stage(value)
            maps.append(value)
        merged = [layer(one) for layer, one in zip(self.lateral, maps, strict=True)]
        for index in (1, 0):
            merged[index] = merged[index] + F.interpolate(
                merged[index + 1], scale_factor=2.0, mode="nearest"
            )
        fine = torch.stack(
            [layer(one) for layer, one in zip(self.semantic, merged, strict=True)]
        ).sum(0)
        things = self.instances(merged[1])
        inverse = (self.bins(fine).softmax(1) * self.inverse_m).sum(1, keepdim=True)
        return {
            "classes": F.interpolate(self.classes(fine), scale_factor=4.0, mode="bilinear"),
            "centres": self.centres(things).sigmoid(),
            "offsets": self.offsets(things).tanh() * FARTHEST_CELLS,
            "depth": 1 / inverse,
        }

    @staticmethod
    def lesson(outputs: dict[str, Tensor], targets: Targets) -> Tensor:
        """Returns the loss."""
        return (
            classes_loss(outputs["classes"], targets)
            + heat_loss(outputs["centres"], targets)
            + depth_loss(outputs["depth"], targets)
            + _offsets_loss(outputs["offsets"], targets)
        )


def _offsets_loss(offsets: Tensor, targets: Targets) -> Tensor:
    """Returns the error of the way from each cell with an object to the nearest centre."""
    rows, columns = (torch.arange(size).float() for size in offsets.shape[-2:])
    cells = torch.cartesian_prod(rows, columns)
    is_centre = targets.centres.flatten(1) > 0
    away = torch.cdist(cells, cells)[None].masked_fill(~is_centre[:, None], float("inf"))
    nearest = cells[away.argmin(2)]
    known = (nearest - cells).transpose(1, 2).clamp(-FARTHEST_CELLS, FARTHEST_CELLS)
    is_object = (targets.mask >= MASK_CLASSES.index("vehicle")).float()[:, None]
    weight = F.max_pool2d(is_object, STRIDE).flatten(2) * is_centre.any(1)[:, None, None]
    error = (offsets.flatten(2) - known).abs() * weight
    return error.sum() / (weight.sum() * 2 + 1)


def _grouped(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, width, 5, padding=2, groups=width),
        nn.Conv2d(width, width, 1, bias=False),
        nn.GroupNorm(16, width),
        nn.ReLU(),
    )


def _enlarging(level: int) -> nn.Sequential:
    """Semantic pyramid of Kirillov et al. (2019): convolution, GroupNorm, ReLU, twice as large."""
    layers: list[nn.Module] = []
    for _ in range(max(level, 1)):
        layers += [nn.Conv2d(NECK, NECK, 3, padding=1), nn.GroupNorm(8, NECK), nn.ReLU()]
        if level:
            layers.append(nn.Upsample(scale_factor=2.0, mode="bilinear"))
    return nn.Sequential(*layers)
