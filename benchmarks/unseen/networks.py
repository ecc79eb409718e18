"""The table of networks; `lesson` says what a network is taught."""

from torch import nn

from benchmarks.unseen.anchor_pyramid import AnchorPyramid
from benchmarks.unseen.gated_unet import GatedUnet
from benchmarks.unseen.mask_queries import MaskQueries
from benchmarks.unseen.mobile_lanes import MobileLanes
from benchmarks.unseen.panoptic_centres import PanopticCentres
from benchmarks.unseen.yolo_masks import YoloMasks

NETWORKS: dict[str, type[nn.Module]] = {
    "yolo_masks": YoloMasks,
    "mobile_lanes": MobileLanes,
    "gated_unet": GatedUnet,
    "panoptic_centres": PanopticCentres,
    "mask_queries": MaskQueries,
    "anchor_pyramid": AnchorPyramid,
}
