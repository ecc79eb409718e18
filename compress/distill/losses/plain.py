"""Outputs of which nothing is known."""

from collections.abc import Mapping

import torch
from torch import Tensor

from compress.distill.losses.contract import HeadOutputs
from compress.distill.settings import DistillSettings


def plain_loss(
    student: HeadOutputs,
    teacher: HeadOutputs,
    settings: DistillSettings,
    variances: Mapping[str, float] | None = None,
) -> Tensor:
    """Squared error in units of the teacher's variance.

    [N, K] may be logits of classes or a pose, a speed and a curvature. A divergence of softmaxes
    would not see an offset of the latter, and logits are learned from their squared error as well
    (Kim et al., 2021, "Comparing Kullback-Leibler Divergence and Mean Squared Error Loss in
    Knowledge Distillation").

    Args:
        student: outputs.
        teacher: outputs.
        settings: not used.
        variances: of the teacher's outputs over many samples. That of a batch, which is taken for
            outputs that are not named, says little of few values, such as a speed of two samples.
    """
    del settings
    terms = []
    for name, wanted in teacher.items():
        known = (variances or {}).get(name)
        scale = wanted.var(correction=0) if known is None else wanted.new_tensor(known)
        terms.append((student[name] - wanted).square().mean() / scale.clamp(min=1e-12))
    return torch.stack(terms).sum()
