"""Depth as the logarithm of inverse depth, at a quarter of the resolution."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perception.heads.head import Head, pick_level
from perception.neck import conv_block
from perception.scene.sample import Scene

MIN_DEPTH_M = 0.5
MAX_DEPTH_M = 100.0
TYPICAL_DEPTH_M = 15.0


@dataclass(frozen=True, kw_only=True)
class LogInverseDepth:
    """Encodes depth as log(1 / depth), with depth in metres.

    At a reduced resolution everything looks further away: depth is divided by the scale, so that
    one appearance in pixels always means one depth (canonical camera, Yin et al., 2023).

    Attributes:
        stride: pixels per cell of the output.
    """

    stride: int = 4

    def encode(self, scene: Scene, scale: float) -> dict[str, NDArray[np.generic]]:
        """Returns `log_inverse_depth` [H/stride, W/stride] float32; NaN for sky and no depth."""
        offset = self.stride // 2
        rows, columns = (extent // self.stride for extent in scene.depth.shape)
        depth = scene.depth[offset :: self.stride, offset :: self.stride][:rows, :columns]
        valid = np.isfinite(depth) & (depth > 0)
        metres = np.clip(np.where(valid, depth, 1.0), MIN_DEPTH_M, MAX_DEPTH_M) / scale
        target = np.where(valid, -np.log(metres), np.nan)
        return {"log_inverse_depth": target.astype(np.float32)}


class DepthHead(Head):
    """Log inverse depth (1/m) at stride 4 (or the finest level of the neck).

    Args:
        channels: channels of the neck.
        strides: strides of the neck's levels, finest first.
        weight: factor on the loss.
    """

    def __init__(self, channels: int, strides: list[int], *, weight: float = 2.5) -> None:
        super().__init__()
        self.level = pick_level(strides, 4)
        self.weight = weight
        self.encoder = LogInverseDepth(stride=self.level)
        self.tower = conv_block(channels, channels)
        self.output = nn.Conv2d(channels, 1, 1)
        self.output.bias = nn.Parameter(torch.full((1,), -math.log(TYPICAL_DEPTH_M)))
        self.output_names = ("depth",)
        self.metadata = {"outputs": ["depth"], "stride": self.level}

    def forward(self, levels: dict[int, Tensor]) -> dict[str, Tensor]:
        """Returns `depth` [N, 1, H/4, W/4], the logarithm of inverse depth in 1/m."""
        return {"depth": self.output(self.tower(levels[self.level]))}

    def loss(self, outputs: dict[str, Tensor], targets: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the mean absolute error of the logarithm where depth is known."""
        predicted, true = outputs["depth"][:, 0], targets["log_inverse_depth"]
        valid = ~true.isnan()
        error = (predicted - true.nan_to_num())[valid].abs().sum() / valid.sum().clamp(min=1)
        return {"depth": self.weight * error}
