"""Outputs of which nothing is known."""

import torch
from torch import Tensor

from compress.distill.losses.contract import HeadOutputs
from compress.distill.losses.divergence import soft_divergence
from compress.distill.settings import DistillSettings


def plain_loss(student: HeadOutputs, teacher: HeadOutputs, settings: DistillSettings) -> Tensor:
    """Divergence for [N, classes], squared error in units of the teacher's variance otherwise."""
    terms = []
    for name, wanted in teacher.items():
        got = student[name]
        if wanted.ndim == 2 and wanted.shape[1] > 1:
            terms.append(soft_divergence(got, wanted, 1, settings.temperature).mean())
        else:
            scale = wanted.var(correction=0).clamp(min=1e-12)
            terms.append((got - wanted).square().mean() / scale)
    return torch.stack(terms).sum()
