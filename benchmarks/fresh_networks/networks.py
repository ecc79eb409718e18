"""Five networks with several heads each; `lesson` says what a network is taught."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.fresh_networks.losses import (
    boxes_loss,
    classes_loss,
    depth_loss,
    heat_loss,
    points_loss,
)
from benchmarks.fresh_networks.parts import (
    ConvNorm,
    PooledContext,
    Separable,
    SplitBottlenecks,
    Standardize,
    Swish,
    Trunk,
    WeighedPyramid,
    rare,
)
from benchmarks.fresh_networks.scenes import FARTHEST_M, HEIGHT, STRIDE, WIDTH, Targets
from perception.scene.sample import BOX_CLASSES, MASK_CLASSES

Outputs = dict[str, Tensor]
KINDS, CLASSES = len(BOX_CLASSES), len(MASK_CLASSES)
ROWS, COLUMNS = HEIGHT // STRIDE, WIDTH // STRIDE


class HardcorePyramid(nn.Module):
    """HardCoReNAS with BiFPN; swish written out, sigmoid, exp and softplus inside the file."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Trunk("hardcorenas_a", (2, 3, 4))
        self.standardize = Standardize()
        width = 48
        self.neck = WeighedPyramid(self.trunk.channels, width)
        self.heat = nn.Sequential(Separable(width, width, Swish), rare(nn.Conv2d(width, KINDS, 1)))
        self.sides = nn.Sequential(Separable(width, width, Swish), nn.Conv2d(width, 4, 1))
        self.classes = nn.Sequential(Separable(width, width, Swish), nn.Conv2d(width, CLASSES, 1))
        self.depth = nn.Sequential(Separable(width, 32, nn.ELU), nn.Conv2d(32, 1, 3, padding=1))

    def forward(self, image: Tensor) -> Outputs:
        """Returns heat, boxes, classes and depth."""
        fine = self.neck(self.trunk(self.standardize(image)))[0]
        enlarged = F.interpolate(self.depth(fine), scale_factor=4.0, mode="bilinear")
        return {
            "heat": self.heat(fine).sigmoid(),
            "boxes": _around_cells(self.sides(fine).exp() * STRIDE),
            "classes": F.interpolate(self.classes(fine), size=(HEIGHT, WIDTH), mode="bilinear"),
            "depth": F.softplus(enlarged),
        }

    @staticmethod
    def lesson(outputs: Outputs, targets: Targets) -> Tensor:
        """Returns the loss."""
        return _usual_lesson(outputs, targets)


class RegnetDistances(nn.Module):
    """RegNetY with a path-aggregation neck; boxes as means over bins on three levels, joined."""

    BINS = 8

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Trunk("regnety_002", (2, 3, 4))
        fine, middle, coarse = self.trunk.channels
        act = nn.SiLU
        self.context = PooledContext(coarse, 64, 128, act)
        self.to_middle = SplitBottlenecks(128 + middle, 96, act)
        self.to_fine = SplitBottlenecks(96 + fine, 64, act)
        self.from_fine = ConvNorm(64, 64, stride=2, act=act)
        self.at_middle = SplitBottlenecks(64 + 96, 96, act)
        self.from_middle = ConvNorm(96, 96, stride=2, act=act)
        self.at_coarse = SplitBottlenecks(96 + 128, 128, act)
        widths = (64, 96, 128)
        self.sides = nn.ModuleList(
            nn.Sequential(ConvNorm(width, 48, act=act), nn.Conv2d(48, 4 * self.BINS, 1))
            for width in widths
        )
        self.scores = nn.ModuleList(
            nn.Sequential(Separable(width, 48, act), rare(nn.Conv2d(48, KINDS, 1)))
            for width in widths
        )
        self.register_buffer("bins", torch.arange(self.BINS).float().view(1, 1, self.BINS, 1))
        self.depth = nn.Sequential(
            nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.PReLU(32),
            nn.ConvTranspose2d(32, 16, 2, 2),
            nn.PReLU(),
            nn.Conv2d(16, 1, 3, padding=1),
            nn.Softplus(),
        )
        self.classes = nn.Sequential(
            ConvNorm(64, 48, act=nn.PReLU), nn.ConvTranspose2d(48, CLASSES, STRIDE, STRIDE)
        )

    def forward(self, image: Tensor) -> Outputs:
        """Returns boxes and scores of three levels in one tensor, classes and depth."""
        maps = self._neck(self.trunk(image))
        found = [self._decode(level, one) for level, one in enumerate(maps)]
        return {
            "detections": torch.cat(found, 2),
            "classes": self.classes(maps[0]),
            "depth": self.depth(maps[0]),
        }

    def _neck(self, features: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        fine, middle, coarse = features
        top = self.context(coarse)
        down = self.to_middle(torch.cat([_doubled(top), middle], 1))
        first = self.to_fine(torch.cat([_doubled(down), fine], 1))
        second = self.at_middle(torch.cat([self.from_fine(first), down], 1))
        return first, second, self.at_coarse(torch.cat([self.from_middle(second), top], 1))

    def _decode(self, level: int, value: Tensor) -> Tensor:
        stride = STRIDE * 2**level
        count, _, rows, columns = value.shape
        shares = self.sides[level](value).view(count, 4, self.BINS, -1).softmax(2)
        sides = (shares * self.bins).sum(2).view(count, 4, rows, columns) * stride
        boxes = _around_cells(sides, stride).flatten(2)
        return torch.cat([boxes, self.scores[level](value).flatten(2).sigmoid()], 1)

    @staticmethod
    def lesson(outputs: Outputs, targets: Targets) -> Tensor:
        """Returns the loss; coarser levels learn where something is, the finest its box too."""
        loss = classes_loss(outputs["classes"], targets) + depth_loss(outputs["depth"], targets)
        start = 0
        for level in range(3):
            rows, columns = ROWS >> level, COLUMNS >> level
            part = outputs["detections"][:, :, start : start + rows * columns]
            start += rows * columns
            part = part.unflatten(2, (rows, columns))
            loss = loss + heat_loss(part[:, 4:], targets)
            if level == 0:
                loss = loss + boxes_loss(part[:, :4], targets)
        return loss


class ConvnextContext(nn.Module):
    """ConvNeXt with atrous context; GroupNorm, pixel shuffle, disparity, probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Trunk("convnext_atto", (0, 1, 2))
        self.standardize = Standardize()
        fine, _, coarse = self.trunk.channels
        self.context = nn.ModuleList(
            [_grouped(coarse, 48, 1), _grouped(coarse, 48, 3, 2), _grouped(coarse, 48, 3, 4)]
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(coarse, 48, 1), nn.ReLU())
        self.project, self.low = _grouped(192, 64, 1), _grouped(fine, 24, 1)
        self.decode = nn.Sequential(_grouped(64 + 24, 64, 3), _grouped(64, 64, 3))
        self.classes = nn.Conv2d(64, CLASSES, 1)
        self.disparity = nn.Sequential(
            nn.Conv2d(64, 16 * 4, 3, padding=1),
            nn.PixelShuffle(2),
            nn.LeakyReLU(0.1),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(16, 4, 1),
            nn.PixelShuffle(2),
        )
        self.heat = nn.Sequential(
            nn.Conv2d(64, 32, 3, 2, 1), nn.Hardswish(), rare(nn.Conv2d(32, KINDS, 1))
        )

    def forward(self, image: Tensor) -> Outputs:
        """Returns probabilities of classes, depth and heat."""
        fine, _, coarse = self.trunk(self.standardize(image))
        pooled = F.interpolate(self.pool(coarse), size=coarse.shape[-2:], mode="bilinear")
        wide = self.project(torch.cat([*(one(coarse) for one in self.context), pooled], 1))
        wide = F.interpolate(wide, size=fine.shape[-2:], mode="bilinear")
        value = self.decode(torch.cat([wide, self.low(fine)], 1))
        disparity = self.disparity(value).sigmoid()
        classes = F.interpolate(self.classes(value), size=(HEIGHT, WIDTH), mode="bilinear")
        return {
            "probabilities": classes.softmax(1),
            "depth": 1 / (1 / FARTHEST_M + (1 - 1 / FARTHEST_M) * disparity),
            "heat": self.heat(value).sigmoid(),
        }

    @staticmethod
    def lesson(outputs: Outputs, targets: Targets) -> Tensor:
        """Returns the loss."""
        classes = (outputs["probabilities"] + 1e-6).log()
        return (
            classes_loss(classes, targets)
            + depth_loss(outputs["depth"], targets)
            + heat_loss(outputs["heat"], targets)
        )


class GhostQueries(nn.Module):
    """GhostNet with a U-Net; InstanceNorm, Mish, depth over bins, places as means, queries."""

    QUERIES, WIDTH, DEPTHS = 12, 64, 24

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Trunk("ghostnet_100", (1, 2, 3, 4))
        counts = self.trunk.channels
        self.enlarge = nn.ModuleList(
            nn.ConvTranspose2d(inputs, outputs, 2, 2)
            for inputs, outputs in ((counts[3], 64), (64, 48), (48, 32))
        )
        self.join = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width + skip, width, 3, padding=1, bias=False),
                nn.InstanceNorm2d(width, affine=True),
                nn.Mish(),
            )
            for width, skip in ((64, counts[2]), (48, counts[1]), (32, counts[0]))
        )
        self.classes = nn.Sequential(
            nn.Upsample(scale_factor=2.0),
            ConvNorm(32, 24, act=nn.LeakyReLU),
            nn.Upsample(scale_factor=2.0, mode="bilinear"),
            nn.Conv2d(24, CLASSES, 1),
        )
        self.depth_bins = nn.Conv2d(32, self.DEPTHS, 1)
        edges = torch.linspace(0, math.log(FARTHEST_M), self.DEPTHS).exp()
        self.register_buffer("edges", edges.view(1, -1, 1, 1))
        self.points = nn.Conv2d(48, KINDS, 1)
        self.register_buffer("cells", _cell_corners() / torch.tensor([WIDTH, HEIGHT]))
        self.queries = nn.Parameter(torch.randn(1, self.QUERIES, self.WIDTH) * 0.1)
        self.decoder = nn.TransformerDecoderLayer(
            self.WIDTH, 4, 2 * self.WIDTH, dropout=0.0, batch_first=True
        )
        self.query_points = nn.Linear(self.WIDTH, 2)
        self.query_kinds = nn.Linear(self.WIDTH, KINDS)

    def forward(self, image: Tensor) -> Outputs:
        """Returns classes, depth, one place per kind, and the places of queries per kind."""
        *skips, value = self.trunk(image * 2 - 1)
        maps = []
        for enlarge, join, skip in zip(self.enlarge, self.join, reversed(skips), strict=True):
            value = join(torch.cat([enlarge(value), skip], 1))
            maps.append(value)
        shares = self.points(maps[1]).flatten(2).softmax(2)
        tokens = maps[0].flatten(2).transpose(1, 2)
        queries = self.decoder(self.queries.expand(len(image), -1, -1), tokens)
        weights = self.query_kinds(queries).softmax(1)
        places = self.query_points(queries).sigmoid()
        return {
            "classes": self.classes(value),
            "depth": (self.depth_bins(value).softmax(1) * self.edges).sum(1, keepdim=True),
            "points": shares @ self.cells,
            "query_points": weights.transpose(1, 2) @ places,
        }

    @staticmethod
    def lesson(outputs: Outputs, targets: Targets) -> Tensor:
        """Returns the loss."""
        return (
            classes_loss(outputs["classes"], targets)
            + depth_loss(outputs["depth"], targets)
            + points_loss(outputs["points"], targets)
            + points_loss(outputs["query_points"], targets)
        )


class LinearAttention(nn.Module):
    """EfficientViT (linear attention, hard-swish) with an added pyramid and shared towers."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Trunk("efficientvit_b0", (1, 2, 3))
        self.standardize = Standardize()
        width = 64
        self.lateral = nn.ModuleList(nn.Conv2d(count, width, 1) for count in self.trunk.channels)
        self.smooth = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=1) for _ in self.trunk.channels
        )
        self.tower = nn.Sequential(
            *(_grouped(width, width, 3) for _ in range(2)), ConvNorm(width, width, 1, act=nn.ReLU6)
        )
        self.heat = rare(nn.Conv2d(width, KINDS, 3, padding=1))
        self.sides = nn.Conv2d(width, 4, 3, padding=1)
        self.sharpness = nn.Conv2d(width, 1, 3, padding=1)
        self.scales = nn.Parameter(torch.ones(len(self.trunk.channels)))
        self.classes = nn.Sequential(Separable(width, 32, nn.Hardswish), nn.Conv2d(32, CLASSES, 1))
        self.depth = nn.Sequential(ConvNorm(width, 32, act=nn.SELU), nn.Conv2d(32, 1, 3, padding=1))

    def forward(self, image: Tensor) -> Outputs:
        """Returns scores and boxes of each level by themselves, classes and depth."""
        maps = self._pyramid(self.trunk(self.standardize(image)))
        results = {}
        for level, (value, scale) in enumerate(zip(maps, self.scales.unbind(), strict=True)):
            common = self.tower(value)
            stride = STRIDE * 2**level
            sides = F.relu(self.sides(common) * scale) * stride
            score = self.heat(common).sigmoid() * self.sharpness(common).sigmoid()
            results[f"scores_{stride}"] = score
            results[f"boxes_{stride}"] = _around_cells(sides, stride)
        enlarged = F.interpolate(self.classes(maps[0]), scale_factor=float(STRIDE), mode="bilinear")
        return results | {"classes": enlarged, "depth": F.softplus(self.depth(maps[0])) * 10}

    def _pyramid(self, features: Sequence[Tensor]) -> list[Tensor]:
        maps = [layer(one) for layer, one in zip(self.lateral, features, strict=True)]
        for index in (1, 0):
            size = maps[index].shape[-2:]
            maps[index] = maps[index] + F.interpolate(maps[index + 1], size=size, mode="bilinear")
        return [layer(one) for layer, one in zip(self.smooth, maps, strict=True)]

    @staticmethod
    def lesson(outputs: Outputs, targets: Targets) -> Tensor:
        """Returns the loss."""
        finest = {name: outputs[f"{name}_{STRIDE}"] for name in ("scores", "boxes")}
        coarser = [
            heat_loss(outputs[f"scores_{stride}"], targets) for stride in (2 * STRIDE, 4 * STRIDE)
        ]
        usual = {"heat": finest["scores"], "boxes": finest["boxes"], **outputs}
        return _usual_lesson(usual, targets) + torch.stack(coarser).sum()


NETWORKS: dict[str, type[nn.Module]] = {
    "hardcorenas_pyramid": HardcorePyramid,
    "regnet_distances": RegnetDistances,
    "convnext_context": ConvnextContext,
    "ghostnet_queries": GhostQueries,
    "efficientvit_towers": LinearAttention,
}


def _usual_lesson(outputs: Outputs, targets: Targets) -> Tensor:
    return (
        heat_loss(outputs["heat"], targets)
        + boxes_loss(outputs["boxes"], targets)
        + classes_loss(outputs["classes"], targets)
        + depth_loss(outputs["depth"], targets)
    )


def _grouped(inputs: int, outputs: int, size: int, dilation: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, padding=dilation * (size // 2), dilation=dilation),
        nn.GroupNorm(8, outputs),
        nn.ReLU(),
    )


def _doubled(value: Tensor) -> Tensor:
    return F.interpolate(value, scale_factor=2.0)


def _around_cells(sides: Tensor, stride: int = STRIDE) -> Tensor:
    """Returns boxes in pixels from distances left, top, right, bottom of the cells' centres."""
    rows = (torch.arange(sides.shape[2], device=sides.device) + 0.5).view(1, 1, -1, 1) * stride
    columns = (torch.arange(sides.shape[3], device=sides.device) + 0.5).view(1, 1, 1, -1) * stride
    left, top, right, bottom = sides.split(1, 1)
    return torch.cat([columns - left, rows - top, columns + right, rows + bottom], 1)


def _cell_corners() -> Tensor:
    """Returns x and y of each cell in pixels [cells, 2]."""
    rows, columns = torch.meshgrid(torch.arange(ROWS), torch.arange(COLUMNS), indexing="ij")
    return torch.stack([columns.flatten(), rows.flatten()], 1).float() * STRIDE
