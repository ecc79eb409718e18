"""An EfficientDet: EfficientNet-Lite, two rounds of BiFPN, heads with norms per level, anchors."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.fresh_networks.losses import boxes_loss, classes_loss, depth_loss, heat_loss
from benchmarks.fresh_networks.parts import Separable, Standardize, Trunk, WeighedPyramid, rare
from benchmarks.fresh_networks.scenes import HEIGHT, STRIDE, WIDTH, Targets
from perception.scene.sample import BOX_CLASSES, MASK_CLASSES

KINDS, NECK, ANCHORS, REPEATS = len(BOX_CLASSES), 56, 3, 2
SIZES = (2.0, 3.5, 5.0)
"""Of the anchors, in cells."""


class SharedHead(nn.Module):
    """Separable convolutions that all levels share, with BatchNorm of its own for each level."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.depthwise = nn.ModuleList(
            nn.Conv2d(NECK, NECK, 3, padding=1, groups=NECK, bias=False) for _ in range(REPEATS)
        )
        self.pointwise = nn.ModuleList(nn.Conv2d(NECK, NECK, 1) for _ in range(REPEATS))
        self.norms = nn.ModuleList(
            nn.ModuleList(nn.BatchNorm2d(NECK) for _ in range(3)) for _ in range(REPEATS)
        )
        self.leave = nn.Conv2d(NECK, ANCHORS * outputs, 1)
        self.outputs = outputs

    def forward(self, value: Tensor, level: int) -> Tensor:
        """Returns one row per anchor [N, rows, outputs]."""
        for depthwise, pointwise, norms in zip(
            self.depthwise, self.pointwise, self.norms, strict=True
        ):
            value = F.silu(norms[level](pointwise(depthwise(value))))
        return self.leave(value).permute(0, 2, 3, 1).reshape(len(value), -1, self.outputs)


class AnchorPyramid(nn.Module):
    """Scores and decoded boxes of all anchors, classes and depth."""

    def __init__(self) -> None:
        super().__init__()
        self.standardize = Standardize()
        self.trunk = Trunk("efficientnet_lite0", (2, 3, 4))
        self.neck = nn.ModuleList(
            [WeighedPyramid(self.trunk.channels, NECK), WeighedPyramid((NECK,) * 3, NECK)]
        )
        self.scores, self.deltas = SharedHead(KINDS), SharedHead(4)
        rare(self.scores.leave)
        self.classes = nn.Sequential(
            Separable(NECK, 48, nn.SiLU),
            nn.Upsample(scale_factor=2.0, mode="bilinear"),
            Separable(48, 32, nn.SiLU),
            nn.ConvTranspose2d(32, len(MASK_CLASSES), 4, 4),
        )
        self.depth = nn.Sequential(
            Separable(NECK, 32, nn.SiLU), nn.Conv2d(32, 1, 3, padding=1), nn.ReLU6()
        )

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Returns scores [N, anchors, 3], boxes in pixels, classes, depth."""
        maps = self.trunk(self.standardize(image))
        for neck in self.neck:
            maps = neck(maps)
        scores = [self.scores(one, level) for level, one in enumerate(maps)]
        boxes = [
            _decode(self.deltas(one, level), one.shape[-2:], STRIDE * 2**level)
            for level, one in enumerate(maps)
        ]
        return {
            "scores": torch.cat(scores, 1).sigmoid(),
            "boxes": torch.cat(boxes, 1),
            "classes": self.classes(maps[0]),
            "depth": self.depth(maps[0]).exp(),
        }

    @staticmethod
    def lesson(outputs: dict[str, Tensor], targets: Targets) -> Tensor:
        """Returns the loss; boxes are learned by the finest level's first anchor."""
        loss = classes_loss(outputs["classes"], targets) + depth_loss(outputs["depth"], targets)
        start = 0
        for level in range(3):
            shape = (HEIGHT // STRIDE >> level, WIDTH // STRIDE >> level)
            rows = slice(start, start + shape[0] * shape[1] * ANCHORS)
            start = rows.stop
            scores = outputs["scores"][:, rows].unflatten(1, (*shape, ANCHORS))
            loss = loss + heat_loss(scores.amax(3).permute(0, 3, 1, 2), targets)
            if level == 0:
                boxes = outputs["boxes"][:, rows].unflatten(1, (*shape, ANCHORS))[:, :, :, 0]
                loss = loss + boxes_loss(boxes.permute(0, 3, 1, 2), targets)
        return loss


def _decode(deltas: Tensor, shape: torch.Size, stride: int) -> Tensor:
    """Returns left, top, right, bottom in pixels of anchors' corrections."""
    rows, columns = (torch.arange(size) + 0.5 for size in shape)
    y, x, sides = (
        part.flatten() * stride
        for part in torch.meshgrid(rows, columns, torch.tensor(SIZES), indexing="ij")
    )
    centre_x, centre_y = x + deltas[..., 0] * sides, y + deltas[..., 1] * sides
    half_width, half_height = (deltas[..., axis].exp() * sides / 2 for axis in (2, 3))
    return torch.stack(
        [
            centre_x - half_width,
            centre_y - half_height,
            centre_x + half_width,
            centre_y + half_height,
        ],
        -1,
    )
