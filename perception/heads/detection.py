"""Anchor-free detection: class, box and centre-ness per location (FCOS, Tian et al., 2019)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perception.heads.assignment import BoxAssignment
from perception.heads.head import Head, pick_level
from perception.neck import conv_block
from perception.scene.sample import BOX_CLASSES

FOCAL_ALPHA = 0.25
FOCAL_GAMMA = 2.0
PRIOR = 0.01
"""Probability of an object with which the class logits start (Lin et al., 2017, section 4.1)."""
START = {"class": -math.log(1 / PRIOR - 1), "box": 0.5, "centre": 0.0}
"""Biases of the last convolutions before training."""
MAX_LOG_DISTANCE = 5.0


class DetectionHead(Head):
    """Class logits, log distances and centre-ness logits on two levels.

    Args:
        channels: channels of the neck.
        strides: strides of the neck's levels, finest first.
        levels: strides to detect on; those the neck lacks are replaced by the next coarser one.
        classes: names of the classes.
        depth: convolutions of each level's tower.
        weight: factor on the loss.
    """

    def __init__(
        self,
        channels: int,
        strides: list[int],
        *,
        levels: Sequence[int] = (8, 16),
        classes: Sequence[str] = BOX_CLASSES,
        depth: int = 2,
        weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.levels = sorted({pick_level(strides, level) for level in levels})
        self.weight = weight
        limits = tuple(5.0 * level for level in self.levels[:-1])
        self.encoder = BoxAssignment(strides=tuple(self.levels), limits_px=limits)
        self.towers = nn.ModuleDict()
        self.outputs = nn.ModuleDict()
        sizes = {"class": len(classes), "box": 4, "centre": 1}
        for level in self.levels:
            tower = [conv_block(channels, channels) for _ in range(depth)]
            self.towers[str(level)] = nn.Sequential(*tower)
            for kind, size in sizes.items():
                convolution = nn.Conv2d(channels, size, 3, padding=1)
                start = torch.full((size,), START[kind])
                convolution.bias = nn.Parameter(start)
                self.outputs[f"{kind}_{level}"] = convolution
        self.output_names = tuple(f"detection_{name}" for name in self.outputs)
        self.metadata = {
            "outputs": list(self.output_names),
            "strides": self.levels,
            "classes": list(classes),
        }

    def forward(self, levels: dict[int, Tensor]) -> dict[str, Tensor]:
        """Returns `detection_class_s`, `detection_box_s`, `detection_centre_s` per stride s."""
        features = {level: self.towers[str(level)](levels[level]) for level in self.levels}
        return {
            f"detection_{name}": convolution(features[int(name.rpartition("_")[2])])
            for name, convolution in self.outputs.items()
        }

    def loss(self, outputs: dict[str, Tensor], targets: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the focal, GIoU and centre-ness losses, per assigned location."""
        logits, boxes, centres = (
            torch.cat([_flatten(outputs[f"detection_{kind}_{s}"]) for s in self.levels])
            for kind in ("class", "box", "centre")
        )
        labels = torch.cat([targets[f"class_{s}"].reshape(-1) for s in self.levels])
        distances = torch.cat([_flatten(targets[f"box_{s}"]) for s in self.levels])
        positive = labels >= 0
        count = positive.sum().clamp(min=1)
        one_hot = F.one_hot(labels.clamp(min=0), logits.shape[1]) * positive[:, None]
        focal = focal_loss(logits, one_hot.to(logits.dtype)).sum() / count
        true = distances[positive]
        predicted = boxes[positive].clamp(max=MAX_LOG_DISTANCE).exp()
        quality = centre_ness(true)
        overlap = (giou_loss(predicted, true) * quality).sum() / quality.sum().clamp(min=1.0)
        centre = F.binary_cross_entropy_with_logits(centres[positive, 0], quality, reduction="sum")
        return {
            "detection_class": self.weight * focal,
            "detection_box": self.weight * overlap,
            "detection_centre": self.weight * centre / count,
        }


def focal_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the focal loss (Lin et al., 2017, equation 5), element by element."""
    probability = torch.sigmoid(logits)
    entropy = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    miss = targets * (1 - probability) + (1 - targets) * probability
    alpha = targets * FOCAL_ALPHA + (1 - targets) * (1 - FOCAL_ALPHA)
    return alpha * miss**FOCAL_GAMMA * entropy


def giou_loss(predicted: Tensor, true: Tensor) -> Tensor:
    """Returns 1 - generalized IoU (Rezatofighi et al., 2019) of boxes around one location.

    Args:
        predicted: [N, 4] distances to left, top, right, bottom; above 0.
        true: [N, 4] the same of the true boxes.

    Returns:
        [N], from 0 (equal) to 2.
    """
    near, far = torch.minimum(predicted, true), torch.maximum(predicted, true)
    intersection, hull = _area(near), _area(far)
    union = _area(predicted) + _area(true) - intersection
    return 1 - intersection / union + (hull - union) / hull


def centre_ness(distances: Tensor) -> Tensor:
    """Returns how central each location is in its box, 0..1 (FCOS, equation 3)."""
    left, top, right, bottom = distances.unbind(1)
    horizontal = torch.minimum(left, right) / torch.maximum(left, right)
    vertical = torch.minimum(top, bottom) / torch.maximum(top, bottom)
    return torch.sqrt(horizontal * vertical)


def _area(distances: Tensor) -> Tensor:
    left, top, right, bottom = distances.unbind(1)
    return (left + right) * (top + bottom)


def _flatten(values: Tensor) -> Tensor:
    """Turns [N, C, H, W] into [N * H * W, C]."""
    return values.permute(0, 2, 3, 1).reshape(-1, values.shape[1])
