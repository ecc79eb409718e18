"""What it means, per kind of head, that a student answers as its teacher does."""

from compress.distill.losses.contract import HeadLoss, HeadOutputs
from compress.distill.losses.depth import depth_loss
from compress.distill.losses.detection import detection_loss
from compress.distill.losses.plain import plain_loss
from compress.distill.losses.segmentation import segmentation_loss

HEAD_LOSSES: dict[str, HeadLoss] = {
    "detection": detection_loss,
    "segmentation": segmentation_loss,
    "depth": depth_loss,
}
"""By the head's name in the network's metadata; every other head has `plain_loss`."""

__all__ = ["HEAD_LOSSES", "HeadLoss", "HeadOutputs", "plain_loss"]
