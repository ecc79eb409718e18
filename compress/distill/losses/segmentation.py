"""Class maps: each pixel's distribution, and where each class is seen."""

import torch
from torch import Tensor

from compress.distill.losses.contract import HeadOutputs
from compress.distill.losses.divergence import channel_wise_divergence, soft_divergence
from compress.distill.settings import DistillSettings


def segmentation_loss(
    student: HeadOutputs, teacher: HeadOutputs, settings: DistillSettings
) -> Tensor:
    """Per-pixel divergence of the classes, plus channel-wise divergence of the class maps.

    Args:
        student: logits [N, classes, H, W] per output.
        teacher: the same.
        settings: both temperatures.
    """
    terms = []
    for name, wanted in teacher.items():
        got = student[name]
        terms.append(soft_divergence(got, wanted, 1, settings.temperature).mean())
        terms.append(channel_wise_divergence(got, wanted, settings.feature_temperature))
    return torch.stack(terms).sum()
