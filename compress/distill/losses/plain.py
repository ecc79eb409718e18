"""Outputs of which nothing is known."""

import torch
from torch import Tensor

from compress.distill.losses.contract import HeadOutputs
from compress.distill.settings import DistillSettings


def plain_loss(student: HeadOutputs, teacher: HeadOutputs, settings: DistillSettings) -> Tensor:
    """Squared error in units of the teacher's variance.

    [N, K] may be logits of classes or a pose, a speed and a curvature. A divergence of softmaxes
    would not see an offset of the latter, and logits are learned from their squared error as well
    (Kim et al., 2021, "Comparing Kullback-Leibler Divergence and Mean Squared Error Loss in
    Knowledge Distillation").
    """
    terms = []
    for name, wanted in teacher.items():
        scale = wanted.var(correction=0).clamp(min=1e-12)
        terms.append((student[name] - wanted).square().mean() / scale)
    return torch.stack(terms).sum()
