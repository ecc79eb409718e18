"""Semantic segmentation at a quarter of the resolution."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perception.heads.head import Head, pick_level
from perception.neck import conv_block
from perception.scene.sample import MASK_CLASSES, Scene

RARE_WEIGHTS = {"lane": 2.0, "pedestrian": 2.0}
"""Weights of the classes with the fewest pixels in the cross-entropy; the others have 1."""


@dataclass(frozen=True, kw_only=True)
class MaskFractions:
    """Encodes a mask as the share of each class in each cell of the output.

    The share, unlike the class of one pixel, keeps lane markings thinner than a cell.

    Attributes:
        stride: pixels per cell.
        classes: number of classes; other values in the mask are ignored.
    """

    stride: int = 4
    classes: int = len(MASK_CLASSES)

    def encode(self, scene: Scene, scale: float) -> dict[str, NDArray[np.generic]]:
        """Returns `fractions` [classes, H/stride, W/stride] float32; ignored pixels count 0."""
        rows, columns = (extent // self.stride for extent in scene.mask.shape)
        cells = scene.mask[: rows * self.stride, : columns * self.stride]
        cells = cells.reshape(rows, self.stride, columns, self.stride).transpose(0, 2, 1, 3)
        cells = cells.reshape(rows, columns, -1)
        fractions = np.empty((self.classes, rows, columns), np.float32)
        for index in range(self.classes):
            np.mean(cells == index, axis=2, out=fractions[index], dtype=np.float32)
        return {"fractions": fractions}


class SegmentationHead(Head):
    """Class logits at stride 4 (or the finest level of the neck).

    Args:
        channels: channels of the neck.
        strides: strides of the neck's levels, finest first.
        classes: names of the classes.
        weight: factor on the loss.
    """

    def __init__(
        self,
        channels: int,
        strides: list[int],
        *,
        classes: Sequence[str] = MASK_CLASSES,
        weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.level = pick_level(strides, 4)
        self.weight = weight
        self.encoder = MaskFractions(stride=self.level, classes=len(classes))
        self.tower = conv_block(channels, channels)
        self.output = nn.Conv2d(channels, len(classes), 1)
        weights = [RARE_WEIGHTS.get(name, 1.0) for name in classes]
        self.class_weights = torch.tensor(weights)
        self.output_names = ("segmentation",)
        self.metadata = {
            "outputs": ["segmentation"],
            "classes": list(classes),
            "stride": self.level,
        }

    def forward(self, levels: dict[int, Tensor]) -> dict[str, Tensor]:
        """Returns `segmentation` [N, classes, H/4, W/4] logits."""
        return {"segmentation": self.output(self.tower(levels[self.level]))}

    def loss(self, outputs: dict[str, Tensor], targets: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the weighted cross-entropy and the Dice loss over the classes present."""
        logits, fractions = outputs["segmentation"], targets["fractions"]
        weighted = fractions * self.class_weights.to(logits)[None, :, None, None]
        entropy = -(weighted * logits.log_softmax(1)).sum() / weighted.sum().clamp(min=1.0)
        return {
            "segmentation_entropy": self.weight * entropy,
            "segmentation_dice": self.weight * dice_loss(logits.softmax(1), fractions),
        }


def dice_loss(probabilities: Tensor, fractions: Tensor) -> Tensor:
    """Returns 1 - Dice (Milletari et al., 2016), the mean over the classes present in the batch.

    Args:
        probabilities: [N, C, H, W].
        fractions: [N, C, H, W] shares of the classes; a cell that sums to 0 is ignored.
    """
    valid = fractions.sum(1, keepdim=True)
    overlap = (probabilities * fractions).sum((0, 2, 3))
    total = (probabilities.square() * valid + fractions.square()).sum((0, 2, 3))
    dice = 2 * overlap / total.clamp(min=1.0)
    present = fractions.sum((0, 2, 3)) > 0
    return 1 - dice[present].mean() if bool(present.any()) else overlap.sum() * 0
