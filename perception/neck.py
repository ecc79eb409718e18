"""The light neck: one channel width for every level, context passed from coarse to fine."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv_block(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """Returns convolution, BatchNorm and ReLU, which fold into one INT8 convolution."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Neck(nn.Module):
    """A feature pyramid with a context convolution below its coarsest level.

    Feature Pyramid Networks (Lin et al., 2017) with additions in place of concatenations, so that
    an INT8 engine fuses each addition into the convolution before it.

    Args:
        in_channels: channels of the backbone's features, finest level first.
        channels: channels of every level of the neck.
    """

    def __init__(self, in_channels: list[int], channels: int) -> None:
        super().__init__()
        self.laterals = nn.ModuleList(conv_block(width, channels, 1) for width in in_channels)
        self.context = conv_block(channels, channels, stride=2)
        self.smooth = nn.ModuleList(conv_block(channels, channels) for _ in in_channels[:-1])

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        """Merges the levels.

        Args:
            features: [N, C_i, H_i, W_i] per level, finest first.

        Returns:
            [N, channels, H_i, W_i] per level, finest first.
        """
        levels = [lateral(level) for lateral, level in zip(self.laterals, features, strict=True)]
        levels[-1] = levels[-1] + _upsample(self.context(levels[-1]), levels[-1])
        for index in range(len(levels) - 2, -1, -1):
            merged = levels[index] + _upsample(levels[index + 1], levels[index])
            levels[index] = self.smooth[index](merged)
        return levels


def _upsample(coarse: Tensor, fine: Tensor) -> Tensor:
    """Repeats pixels up to the size of `fine`; a factor of two keeps the graph a plain Resize."""
    height, width = fine.shape[-2:]
    if (height, width) == (2 * coarse.shape[-2], 2 * coarse.shape[-1]):
        return F.interpolate(coarse, scale_factor=2.0, mode="nearest")
    upsampled: torch.Tensor = F.interpolate(coarse, size=(height, width), mode="nearest")
    return upsampled
