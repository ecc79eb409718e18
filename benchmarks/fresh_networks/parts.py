"""What the networks are built of."""

from collections.abc import Sequence

import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Trunk(nn.Module):
    """A timm network without its classifier, with random weights.

    Args:
        architecture: timm's name.
        stages: which of its feature maps are handed on.
    """

    def __init__(self, architecture: str, stages: Sequence[int]) -> None:
        super().__init__()
        self.network = timm.create_model(
            architecture, pretrained=False, features_only=True, out_indices=tuple(stages)
        )
        self.channels: list[int] = list(self.network.feature_info.channels())

    def forward(self, image: Tensor) -> list[Tensor]:
        """Returns the feature maps of a picture."""
        return list(self.network(image))


class Standardize(nn.Module):
    """Takes mean and standard deviation out of a picture, as ImageNet's networks do."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1) * factor)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(1, 3, 1, 1) * factor)

    def forward(self, image: Tensor) -> Tensor:
        """Returns the picture around zero."""
        return (image - self.mean) / self.std


class ConvNorm(nn.Sequential):
    """Convolution, BatchNorm, activation."""

    def __init__(
        self, inputs: int, outputs: int, size: int = 3, *, stride: int = 1, act: type[nn.Module]
    ) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
            nn.BatchNorm2d(outputs),
            act(),
        )


class Separable(nn.Sequential):
    """A depthwise and a pointwise convolution, each with BatchNorm and activation."""

    def __init__(self, inputs: int, outputs: int, act: type[nn.Module]) -> None:
        super().__init__(
            nn.Conv2d(inputs, inputs, 3, 1, 1, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            act(),
            ConvNorm(inputs, outputs, 1, act=act),
        )


class Swish(nn.Module):
    """x sigmoid(x), written out."""

    def forward(self, value: Tensor) -> Tensor:
        """Returns the product."""
        return value * torch.sigmoid(value)


class WeighedPyramid(nn.Module):
    """One round of BiFPN over three feature maps (Tan et al., 2020, "EfficientDet")."""

    def __init__(self, channels: Sequence[int], width: int) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(
            nn.Sequential(nn.Conv2d(count, width, 1), nn.BatchNorm2d(width)) for count in channels
        )
        self.down = nn.ModuleList(Separable(width, width, Swish) for _ in channels[1:])
        self.up = nn.ModuleList(Separable(width, width, Swish) for _ in channels[1:])
        self.down_weights = nn.Parameter(torch.ones(len(channels) - 1, 2))
        self.up_weights = nn.Parameter(torch.ones(len(channels) - 1, 3))

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Returns as many maps, all of one width, finest first."""
        given = [lateral(one) for lateral, one in zip(self.lateral, maps, strict=True)]
        between = list(given)
        for index in range(len(given) - 2, -1, -1):
            own, coarse = _shares(self.down_weights[index])
            enlarged = F.interpolate(between[index + 1], scale_factor=2.0, mode="nearest")
            between[index] = self.down[index](own * given[index] + coarse * enlarged)
        results = [between[0]]
        for index in range(1, len(given)):
            own, middle, fine = _shares(self.up_weights[index - 1])
            pooled = F.max_pool2d(results[-1], 3, 2, 1)
            mixed = own * given[index] + middle * between[index] + fine * pooled
            results.append(self.up[index - 1](mixed))
        return results


def _shares(weights: Tensor) -> tuple[Tensor, ...]:
    positive = F.relu(weights)
    return (positive / (positive.sum() + 1e-4)).unbind()


class SplitBottlenecks(nn.Module):
    """C2f of YOLOv8: a stack of bottlenecks, all of whose results are joined."""

    def __init__(self, inputs: int, outputs: int, act: type[nn.Module]) -> None:
        super().__init__()
        half = outputs // 2
        self.enter = ConvNorm(inputs, outputs, 1, act=act)
        self.blocks = nn.ModuleList(
            nn.Sequential(ConvNorm(half, half, act=act), ConvNorm(half, half, act=act))
            for _ in range(2)
        )
        self.leave = ConvNorm(half * 4, outputs, 1, act=act)

    def forward(self, value: Tensor) -> Tensor:
        """Returns a map of the same size."""
        pieces = list(self.enter(value).chunk(2, 1))
        for block in self.blocks:
            pieces.append(pieces[-1] + block(pieces[-1]))
        return self.leave(torch.cat(pieces, 1))


class PooledContext(nn.Module):
    """SPPF: repeated max pooling joined."""

    def __init__(self, inputs: int, width: int, outputs: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.enter = ConvNorm(inputs, width, 1, act=act)
        self.leave = ConvNorm(width * 4, outputs, 1, act=act)

    def forward(self, value: Tensor) -> Tensor:
        """Returns a map of the same size."""
        pieces = [self.enter(value)]
        for _ in range(3):
            pieces.append(F.max_pool2d(pieces[-1], 5, 1, 2))
        return self.leave(torch.cat(pieces, 1))


def rare(layer: nn.Conv2d) -> nn.Conv2d:
    """Returns a layer whose sigmoid begins low, as that of rare things should."""
    assert layer.bias is not None
    nn.init.constant_(layer.bias, -3.0)
    return layer
