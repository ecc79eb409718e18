"""What each kind of head is taught with."""

import math

import torch.nn.functional as F
from torch import Tensor

from benchmarks.fresh_networks.scenes import Targets

_NEAREST_TO_CERTAIN = 1e-4
_BOX_PIXELS = 16.0


def classes_loss(logits: Tensor, targets: Targets) -> Tensor:
    """Returns the cross-entropy of classes of pixels [N, 6, H, W]."""
    return F.cross_entropy(logits, targets.mask)


def depth_loss(depth_m: Tensor, targets: Targets) -> Tensor:
    """Returns the mean absolute error of the logarithm of depth [N, 1, h, w] in metres."""
    known = F.interpolate(targets.log_depth, size=depth_m.shape[-2:], mode="nearest")
    return (depth_m.clamp(min=1e-3).log() - known).abs().mean()


def heat_loss(heat: Tensor, targets: Targets) -> Tensor:
    """Returns the focal loss of centres of objects [N, 3, h, w] from 0 to 1.

    Zhou et al., 2019, "Objects as Points", equation 1; a coarser map learns the maximum.
    """
    goal = targets.heat
    if heat.shape != goal.shape:
        goal = F.adaptive_max_pool2d(goal, heat.shape[-2:])
    likely = heat.clamp(_NEAREST_TO_CERTAIN, 1 - _NEAREST_TO_CERTAIN)
    is_centre = (goal > 0.99).float()
    found = is_centre * (1 - likely) ** 2 * likely.log()
    absent = (1 - is_centre) * (1 - goal) ** 4 * likely**2 * (1 - likely).log()
    return -(found + absent).sum() / (is_centre.sum() + 1)


def boxes_loss(boxes: Tensor, targets: Targets) -> Tensor:
    """Returns the error of boxes in pixels [N, 4, H/8, W/8] where centres are."""
    error = F.smooth_l1_loss(boxes / _BOX_PIXELS, targets.boxes / _BOX_PIXELS, reduction="none")
    return (error * targets.centres).sum() / (targets.centres.sum() * 4 + 1)


def points_loss(points: Tensor, targets: Targets) -> Tensor:
    """Returns the error of one mean place per class [N, 3, 2], x and y from 0 to 1."""
    heat = targets.heat
    rows = heat.sum(3) / (heat.sum((2, 3)).unsqueeze(-1) + math.ulp(1.0))
    columns = heat.sum(2) / (heat.sum((2, 3)).unsqueeze(-1) + math.ulp(1.0))
    place = [part @ _fractions(part) for part in (columns, rows)]
    return 5 * sum(
        (F.l1_loss(points[..., axis], known) for axis, known in enumerate(place)),
        start=points.new_zeros(()),
    )


def _fractions(part: Tensor) -> Tensor:
    count = part.shape[-1]
    return part.new_tensor([index / count for index in range(count)])
