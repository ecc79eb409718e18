"""A YOLOv8 with masks (C2f, SPPF, path aggregation, DFL, prototypes) and a road head."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.fresh_networks.losses import boxes_loss, classes_loss, depth_loss, heat_loss
from benchmarks.fresh_networks.parts import ConvNorm, PooledContext, SplitBottlenecks, rare
from benchmarks.fresh_networks.scenes import HEIGHT, STRIDE, WIDTH, Targets
from perception.scene.sample import BOX_CLASSES, MASK_CLASSES

KINDS, CLASSES = len(BOX_CLASSES), len(MASK_CLASSES)
BINS, COEFFICIENTS = 16, 8
WIDTHS = (64, 128, 160)
ACT = nn.SiLU


class YoloMasks(nn.Module):
    """Written by hand; boxes, scores and coefficients of all levels joined in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        fine, middle, coarse = WIDTHS
        self.stem = nn.Sequential(ConvNorm(3, 16, stride=2, act=ACT), _down(16, 32))
        self.to_fine, self.to_middle = _down(32, fine), _down(fine, middle)
        self.to_coarse = nn.Sequential(
            _down(middle, coarse), PooledContext(coarse, coarse // 2, coarse, ACT)
        )
        self.down_middle = SplitBottlenecks(coarse + middle, middle, ACT)
        self.down_fine = SplitBottlenecks(middle + fine, fine, ACT)
        self.shrink_fine = ConvNorm(fine, fine, stride=2, act=ACT)
        self.up_middle = SplitBottlenecks(fine + middle, middle, ACT)
        self.shrink_middle = ConvNorm(middle, middle, stride=2, act=ACT)
        self.up_coarse = SplitBottlenecks(middle + coarse, coarse, ACT)
        self.sides = _towers(4 * BINS, 48)
        self.scores = _towers(KINDS, 48)
        for tower in self.scores:
            rare(tower[-1])
        self.masks = _towers(COEFFICIENTS, 32)
        self.mean_of_bins = nn.Conv2d(BINS, 1, 1, bias=False).requires_grad_(False)
        self.mean_of_bins.weight.copy_(torch.arange(BINS).float().view(1, BINS, 1, 1))
        self.prototypes = nn.Sequential(
            ConvNorm(fine, 48, act=ACT),
            nn.ConvTranspose2d(48, 48, 2, 2),
            ConvNorm(48, 32, act=ACT),
            ConvNorm(32, COEFFICIENTS, 1, act=ACT),
        )
        self.road = nn.Sequential(
            ConvNorm(fine, 32, act=ACT),
            nn.Upsample(scale_factor=2.0),
            SplitBottlenecks(32, 24, ACT),
            nn.Upsample(scale_factor=2.0),
            ConvNorm(24, 16, act=ACT),
            nn.Upsample(scale_factor=2.0),
            ConvNorm(16, CLASSES, act=ACT),
        )
        self.depth = nn.Sequential(ConvNorm(fine, 32, act=ACT), nn.Conv2d(32, 1, 1))

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Returns detections, prototypes of masks, classes and depth."""
        maps = self._neck(self.to_fine(self.stem(image)))
        parts = (self.sides, self.scores, self.masks)
        sides, scores, masks = (
            torch.cat([layer(one).flatten(2) for layer, one in zip(part, maps, strict=True)], 2)
            for part in parts
        )
        boxes = self._decode(sides, maps)
        return {
            "detections": torch.cat([boxes, scores.sigmoid(), masks], 1),
            "prototypes": self.prototypes(maps[0]),
            "classes": self.road(maps[0]),
            "depth": self.depth(maps[0]).exp(),
        }

    def _neck(self, fine: Tensor) -> list[Tensor]:
        middle = self.to_middle(fine)
        coarse = self.to_coarse(middle)
        between = self.down_middle(torch.cat([_doubled(coarse), middle], 1))
        first = self.down_fine(torch.cat([_doubled(between), fine], 1))
        second = self.up_middle(torch.cat([self.shrink_fine(first), between], 1))
        return [first, second, self.up_coarse(torch.cat([self.shrink_middle(second), coarse], 1))]

    def _decode(self, sides: Tensor, maps: Sequence[Tensor]) -> Tensor:
        """Returns centre and size in pixels [N, 4, cells] of distances over bins."""
        count, _, cells = sides.shape
        shares = sides.view(count, 4, BINS, cells).transpose(2, 1).softmax(1)
        near, far = self.mean_of_bins(shares).view(count, 4, cells).chunk(2, 1)
        places, strides = _places(maps)
        first, last = places - near, places + far
        return torch.cat([(first + last) / 2, last - first], 1) * strides

    @staticmethod
    def lesson(outputs: dict[str, Tensor], targets: Targets) -> Tensor:
        """Returns the loss; boxes and masks are learned on the finest level."""
        found = outputs["detections"]
        loss = classes_loss(outputs["classes"], targets) + depth_loss(outputs["depth"], targets)
        start = 0
        for level in range(3):
            shape = (HEIGHT // STRIDE >> level, WIDTH // STRIDE >> level)
            part = found[:, :, start : start + shape[0] * shape[1]].unflatten(2, shape)
            start += shape[0] * shape[1]
            loss = loss + heat_loss(part[:, 4 : 4 + KINDS], targets)
            if level == 0:
                centre, half = part[:, :2], part[:, 2:4] / 2
                loss = loss + boxes_loss(torch.cat([centre - half, centre + half], 1), targets)
                masks = torch.einsum("nkc,nkhw->nchw", part[:, -COEFFICIENTS:].flatten(2),
                                     outputs["prototypes"])  # fmt: skip
                loss = loss + _mask_loss(masks, targets)
        return loss


def _mask_loss(masks: Tensor, targets: Targets) -> Tensor:
    is_object = (targets.mask >= MASK_CLASSES.index("vehicle")).float()[:, None]
    goal = F.interpolate(is_object, size=masks.shape[-2:], mode="area").expand_as(masks)
    error = F.binary_cross_entropy_with_logits(masks, goal, reduction="none").mean((2, 3))
    centres = targets.centres.flatten(1)
    return (error * centres).sum() / (centres.sum() + 1)


def _places(maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the cells' centres in cells [2, cells], and their strides [1, cells]."""
    places, strides = [], []
    for level, one in enumerate(maps):
        rows, columns = torch.meshgrid(
            *(torch.arange(size, device=one.device) + 0.5 for size in one.shape[-2:]), indexing="ij"
        )
        places.append(torch.stack([columns.flatten(), rows.flatten()]))
        strides.append(torch.full((1, rows.numel()), float(STRIDE * 2**level)))
    return torch.cat(places, 1), torch.cat(strides, 1)


def _down(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        ConvNorm(inputs, outputs, stride=2, act=ACT), SplitBottlenecks(outputs, outputs, ACT)
    )


def _towers(outputs: int, width: int) -> nn.ModuleList:
    return nn.ModuleList(
        nn.Sequential(
            ConvNorm(inputs, width, act=ACT),
            ConvNorm(width, width, act=ACT),
            nn.Conv2d(width, outputs, 1),
        )
        for inputs in WIDTHS
    )


def _doubled(value: Tensor) -> Tensor:
    return F.interpolate(value, scale_factor=2.0)
