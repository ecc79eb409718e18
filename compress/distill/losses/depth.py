"""Depth as a logarithm."""

import torch
from torch import Tensor

from compress.distill.losses.contract import HeadOutputs
from compress.distill.settings import DistillSettings

SCALE_SHARE = 0.85
"""Lambda of the scale-invariant error, as in most work after Eigen et al."""
SMALLEST_VARIANCE = 1e-8


def depth_loss(student: HeadOutputs, teacher: HeadOutputs, settings: DistillSettings) -> Tensor:
    """Absolute error of the logarithm, plus the scale-invariant error (Eigen et al., 2014, eq. 4).

    With d the difference of the logarithms: mean |d| + sqrt(mean d² - λ (mean d)²), per sample. A
    sign or an offset of the logarithm (depth, inverse depth) makes no difference.

    Args:
        student: logarithms [N, 1, H, W] per output.
        teacher: the same.
        settings: unused.
    """
    del settings
    terms = []
    for name, wanted in teacher.items():
        error = (student[name] - wanted).flatten(1)
        invariant = error.square().mean(1) - SCALE_SHARE * error.mean(1).square()
        terms.append(error.abs().mean() + invariant.clamp(min=SMALLEST_VARIANCE).sqrt().mean())
    return torch.stack(terms).sum()
