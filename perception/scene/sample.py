"""One labelled picture of a road, the type that every data source hands over."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BOX_CLASSES = ("car", "truck", "pedestrian")
MASK_CLASSES = ("background", "sidewalk", "drivable", "lane", "vehicle", "pedestrian")
IGNORE_INDEX = 255


@dataclass(frozen=True, eq=False)
class Scene:
    """A picture with the labels of all heads.

    Attributes:
        image: [H, W, 3] BGR.
        boxes: [N, 4] x1, y1, x2, y2 in pixels, the right and bottom edges exclusive.
        labels: [N] index into `BOX_CLASSES`.
        mask: [H, W] index into `MASK_CLASSES`; `IGNORE_INDEX` where nothing is known.
        depth: [H, W] metres along the optical axis; inf for the sky, NaN where nothing is known.
        ids: [N] identity of each box that stays the same through a sequence, None for a
            picture that stands alone.
    """

    image: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    mask: NDArray[np.uint8]
    depth: NDArray[np.float32]
    ids: NDArray[np.int64] | None = None
