"""What it means, per kind of head, that a student answers as its teacher does."""

from compress.distill.losses.contract import HeadLoss, HeadOutputs
from compress.distill.losses.depth import depth_loss
from compress.distill.losses.detection import detection_loss
from compress.distill.losses.plain import plain_loss
from compress.distill.losses.segmentation import segmentation_loss
from compress.distill.settings import DistillSettings

HEAD_LOSSES: dict[str, HeadLoss] = {
    "detection": detection_loss,
    "segmentation": segmentation_loss,
    "depth": depth_loss,
}
"""By the head's name in the network's metadata; every other head has `plain_loss`."""

__all__ = ["HEAD_LOSSES", "HeadLoss", "HeadOutputs", "own_losses", "plain_loss"]


def own_losses(settings: DistillSettings) -> dict[str, HeadLoss]:
    """Returns the losses of heads that are not compared by `plain_loss`."""
    return {} if settings.by_output else HEAD_LOSSES
