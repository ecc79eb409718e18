"""What the segmentation says about the ground under a planned path."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perception.frame.ground import project_ground
from perception.scene.camera import Camera

Array = NDArray[np.float64]

OFF_ROAD_CLASSES = ("background", "sidewalk")
LINE_CLASSES = ("lane",)


class Corridor:
    """Looks up the classes of ground points.

    Args:
        classes: the segmentation's classes by index; names that it does not know are drivable.
        camera: the camera.
    """

    def __init__(self, classes: Sequence[str], camera: Camera) -> None:
        self._camera = camera
        self._is_off_road = np.asarray([name in OFF_ROAD_CLASSES for name in classes] + [False])
        self._is_line = np.asarray([name in LINE_CLASSES for name in classes] + [False])
        self._unseen = len(classes)

    def measure(
        self, points: Array, mask: NDArray[np.uint8]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Tells which ground points are off the road, and which on a lane line.

        A point outside the picture, or hidden by a vehicle or a person, is neither.

        Args:
            points: [..., 2] x, z in metres.
            mask: [h, w] class indices of the whole picture, any resolution.

        Returns:
            two [...] flags: off the road, on a line.
        """
        rows, columns = mask.shape
        pixels = project_ground(points, self._camera)
        scale = np.asarray([columns / self._camera.width, rows / self._camera.height])
        with np.errstate(invalid="ignore"):
            places = np.floor((pixels + 0.5) * scale)
            is_seen = ((places >= 0) & (places < [columns, rows])).all(axis=-1)
        places = np.where(is_seen[..., None], places, 0).astype(np.int64)
        labels = np.where(is_seen, mask[places[..., 1], places[..., 0]], self._unseen)
        labels = np.minimum(labels, self._unseen)
        return self._is_off_road[labels], self._is_line[labels]
