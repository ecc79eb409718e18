"""MobileNetV3 with a pyramid: anchor-free boxes, lanes per row, depth, shares of the scene."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.fresh_networks.losses import boxes_loss, classes_loss, depth_loss, heat_loss
from benchmarks.fresh_networks.parts import ConvNorm, Separable, Standardize, Trunk, rare
from benchmarks.fresh_networks.scenes import FARTHEST_M, STRIDE, Targets
from perception.scene.sample import BOX_CLASSES, MASK_CLASSES

KINDS, CLASSES, LANES = len(BOX_CLASSES), len(MASK_CLASSES), 2


class MobileLanes(nn.Module):
    """FCOS-like towers that all levels share; a lane's column is a mean over each row."""

    def __init__(self) -> None:
        super().__init__()
        self.standardize = Standardize()
        self.trunk = Trunk("mobilenetv3_small_100", (2, 3, 4))
        width = 64
        self.lateral = nn.ModuleList(nn.Conv2d(count, width, 1) for count in self.trunk.channels)
        self.smooth = nn.ModuleList(Separable(width, width, nn.Hardswish) for _ in range(3))
        self.boxes = nn.Sequential(*(ConvNorm(width, width, act=nn.ReLU) for _ in range(2)))
        self.kinds = nn.Sequential(*(ConvNorm(width, width, act=nn.ReLU) for _ in range(2)))
        self.sides, self.centred = (
            nn.Conv2d(width, 4, 3, padding=1),
            nn.Conv2d(width, 1, 3, padding=1),
        )
        self.scores = rare(nn.Conv2d(width, KINDS, 3, padding=1))
        self.level_scales = nn.Parameter(torch.tensor([1.0, 1.0, 1.0]))
        self.lanes = nn.Sequential(
            ConvNorm(width, 32, act=nn.ReLU), nn.Conv2d(32, LANES, (3, 7), padding=(1, 3))
        )
        self.fine = nn.Sequential(
            ConvNorm(width, 48, act=nn.ReLU),
            nn.Upsample(scale_factor=2.0, mode="bilinear", align_corners=True),
            ConvNorm(48, 32, act=nn.ReLU),
        )
        self.classes, self.depth = nn.Conv2d(32, CLASSES, 1), nn.Conv2d(32, 1, 3, padding=1)
        self.scene = nn.Sequential(
            nn.Linear(self.trunk.channels[-1], 128), nn.Hardswish(), nn.Linear(128, CLASSES)
        )

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Returns the three levels' scores and boxes, lanes, classes, depth and shares."""
        features = self.trunk(self.standardize(image))
        maps = self._pyramid(features)
        results = {}
        for level, one in enumerate(maps):
            boxes, stride = self.boxes(one), STRIDE * 2**level
            score = self.scores(self.kinds(one)).sigmoid() * self.centred(boxes).sigmoid()
            sides = (self.sides(boxes) * self.level_scales[level]).exp() * stride
            results[f"scores_{stride}"] = score.sqrt()
            results[f"sides_{stride}"] = sides
        fine = self.fine(maps[0])
        size = image.shape[-2:]
        return results | {
            "lanes": self._find_lanes(maps[0]),
            "classes": F.interpolate(
                self.classes(fine), size=size, mode="bilinear", align_corners=True
            ),
            "depth": FARTHEST_M * self.depth(fine).sigmoid(),
            "scene": self.scene(features[-1].mean((2, 3))).softmax(1),
        }

    def _pyramid(self, features: Sequence[Tensor]) -> list[Tensor]:
        maps = [layer(one) for layer, one in zip(self.lateral, features, strict=True)]
        for index in (1, 0):
            maps[index] = maps[index] + F.interpolate(maps[index + 1], scale_factor=2.0)
        return [layer(one) for layer, one in zip(self.smooth, maps, strict=True)]

    def _find_lanes(self, fine: Tensor) -> Tensor:
        """Returns each lane's column in each row, 0 to 1 [N, lanes, rows]."""
        shares = self.lanes(fine).softmax(3)
        columns = torch.arange(shares.shape[3], dtype=shares.dtype) / shares.shape[3]
        return (shares * columns).sum(3)

    @staticmethod
    def lesson(outputs: dict[str, Tensor], targets: Targets) -> Tensor:
        """Returns the loss; boxes are learned on the finest level."""
        sides = outputs[f"sides_{STRIDE}"]
        rows, columns = (torch.arange(size) + 0.5 for size in sides.shape[-2:])
        x, y = columns.view(1, 1, 1, -1) * STRIDE, rows.view(1, 1, -1, 1) * STRIDE
        left, top, right, bottom = sides.split(1, 1)
        boxes = torch.cat([x - left, y - top, x + right, y + bottom], 1)
        shares = F.one_hot(targets.mask, CLASSES).float().mean((1, 2))
        return (
            sum(heat_loss(outputs[f"scores_{STRIDE << level}"], targets) for level in range(3))
            + boxes_loss(boxes, targets)
            + classes_loss(outputs["classes"], targets)
            + depth_loss(outputs["depth"], targets)
            + _lanes_loss(outputs["lanes"], targets)
            + F.mse_loss(outputs["scene"], shares)
        )


def _lanes_loss(lanes: Tensor, targets: Targets) -> Tensor:
    """Returns the error of the first and last column with a lane, in rows that show one."""
    is_lane = (targets.mask == MASK_CLASSES.index("lane")).float()[:, None]
    cells = F.max_pool2d(is_lane, STRIDE)[:, 0]
    places = torch.arange(cells.shape[2]) / cells.shape[2]
    first = torch.where(cells > 0, places, 1.0).amin(2)
    last = (cells * places).amax(2)
    error = (lanes - torch.stack([first, last], 1)).abs()
    is_shown = cells.amax(2, keepdim=True).transpose(1, 2)
    return 5 * (error * is_shown).sum() / (is_shown.sum() * LANES + 1)
