"""Dense detection: class, box and centre-ness of every location, as `detection_KIND_STRIDE`."""

import torch
from torch import Tensor
from torch.nn import functional as F

from compress.distill.losses.contract import HeadOutputs
from compress.distill.losses.plain import plain_loss
from compress.distill.settings import DistillSettings

MAX_LOG_DISTANCE = 5.0


def detection_loss(student: HeadOutputs, teacher: HeadOutputs, settings: DistillSettings) -> Tensor:
    """Classes where either network sees something; boxes where the teacher does.

    Classes have the divergence of their probabilities, weighted by the larger of the two, so that
    the many empty locations do not drown the few objects. Weights that fall with the error, such
    as those of the quality focal loss (Li et al., 2020), would leave a student that is close to its
    teacher, a quantized one, without a gradient. Boxes (log distances to left, top, right, bottom)
    have generalized IoU plus the absolute error of the logarithm, centre-ness has a squared error;
    both are weighted by the teacher's best class probability where it is above
    `settings.confident`.

    Outputs of other names have `plain_loss`.
    """
    terms, others = [], []
    for name in teacher:
        kind, _, stride = name.rpartition("_")
        if kind != "detection_class":
            if not _has_class(name, teacher):
                others.append(name)
            continue
        terms.append(_level_loss(student, teacher, stride, settings))
    if others:
        terms.append(
            plain_loss(
                {name: student[name] for name in others},
                {name: teacher[name] for name in others},
                settings,
            )
        )
    return torch.stack(terms).sum()


def _has_class(name: str, outputs: HeadOutputs) -> bool:
    kind, _, stride = name.rpartition("_")
    known = kind in ("detection_box", "detection_centre")
    return known and f"detection_class_{stride}" in outputs


def _level_loss(
    student: HeadOutputs, teacher: HeadOutputs, stride: str, settings: DistillSettings
) -> Tensor:
    logits, wanted = student[f"detection_class_{stride}"], teacher[f"detection_class_{stride}"]
    probability = wanted.sigmoid()
    certain = probability.amax(1)
    certain = certain * (certain > settings.confident)
    count = certain.sum().clamp(min=1.0)
    entropy = F.binary_cross_entropy_with_logits(logits, probability, reduction="none")
    least = F.binary_cross_entropy(probability, probability, reduction="none")
    focus = torch.maximum(probability, logits.detach().sigmoid())
    total = (focus * (entropy - least)).sum() / count
    if f"detection_box_{stride}" in teacher:
        errors = _box_errors(student[f"detection_box_{stride}"], teacher[f"detection_box_{stride}"])
        total = total + (errors * certain).sum() / count
    if f"detection_centre_{stride}" in teacher:
        centre = teacher[f"detection_centre_{stride}"][:, 0]
        errors = (student[f"detection_centre_{stride}"][:, 0].sigmoid() - centre.sigmoid()).square()
        total = total + (errors * certain).sum() / count
    return total


def _box_errors(student: Tensor, teacher: Tensor) -> Tensor:
    """Returns [N, H, W]: 1 - generalized IoU (Rezatofighi et al., 2019) plus the log's error."""
    got = student.clamp(max=MAX_LOG_DISTANCE).exp()
    wanted = teacher.clamp(max=MAX_LOG_DISTANCE).exp()
    intersection = _area(torch.minimum(got, wanted))
    hull = _area(torch.maximum(got, wanted))
    union = _area(got) + _area(wanted) - intersection
    overlap = 1 - intersection / union + (hull - union) / hull
    return overlap + (student - teacher).abs().mean(1)


def _area(distances: Tensor) -> Tensor:
    left, top, right, bottom = distances.unbind(1)
    return (left + right) * (top + bottom)
