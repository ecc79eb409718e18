"""The heads, by the name of their task."""

from perception.heads.depth import DepthHead
from perception.heads.detection import DetectionHead
from perception.heads.head import Head
from perception.heads.segmentation import SegmentationHead

HEADS: dict[str, type[Head]] = {
    "detection": DetectionHead,
    "segmentation": SegmentationHead,
    "depth": DepthHead,
}
