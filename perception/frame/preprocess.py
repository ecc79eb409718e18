"""Turns a camera picture into the network's input tensor, without allocating per frame."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.input_spec import LETTERBOX_FILL, InputSpec


class Preprocessor:
    """Fills one reused input tensor, with the same values as `InputSpec.prepare`.

    A pixel has 256 values, so scale, mean and std become one table per channel; the float
    arithmetic is done once and the frame only looks values up.

    Args:
        spec: how pixels become tensors.
        height: the input's height in pixels.
        width: the input's width in pixels.
    """

    def __init__(self, spec: InputSpec, height: int, width: int) -> None:
        import cv2

        self._cv2: Any = cv2
        self._is_letterbox = spec.resize == "letterbox"
        self._height, self._width = height, width
        channels = len(spec.mean)
        self._source_channels = (2, 1, 0) if spec.color == "rgb" else (0, 1, 2)
        self._is_grey = channels == 1
        self._tables = _build_tables(spec)
        self._resized = np.full((height, width, 3), LETTERBOX_FILL, np.uint8)
        self._plane = np.empty((height, width), np.uint8)
        self._planes = [np.empty((height, width), np.uint8) for _ in range(3)]
        self._tensor = np.zeros((1, channels, height, width), np.float32)
        self._source_size: tuple[int, int] | None = None

    def prepare(self, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Returns the input tensor of a picture.

        Args:
            picture: [H, W, 3] uint8 in BGR order, of any size.

        Returns:
            [1, C, height, width] float32, owned by this object and overwritten by the next call.

        Raises:
            InputError: the picture is not [H, W, 3] uint8.
        """
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise InputError(
                f"the picture is {picture.dtype} {list(picture.shape)}", "uint8 [H, W, 3] (BGR)"
            )
        resized = self._fit(picture)
        if self._is_grey:
            self._cv2.cvtColor(resized, self._cv2.COLOR_BGR2GRAY, dst=self._plane)
            self._cv2.LUT(self._plane, self._tables[0], dst=self._tensor[0, 0])
            return self._tensor
        self._cv2.split(resized, self._planes)
        for channel, source in enumerate(self._source_channels):
            self._cv2.LUT(self._planes[source], self._tables[channel], dst=self._tensor[0, channel])
        return self._tensor

    def _fit(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Returns the picture at the input's size, stretched or between grey borders."""
        if picture.shape[:2] == (self._height, self._width):
            return np.ascontiguousarray(picture)
        if not self._is_letterbox:
            self._resize_into(picture, self._resized)
            return self._resized
        height, width = picture.shape[:2]
        ratio = min(self._height / height, self._width / width)
        inner_height, inner_width = max(1, round(height * ratio)), max(1, round(width * ratio))
        if self._source_size != (height, width):
            self._resized[:] = LETTERBOX_FILL
            self._source_size = (height, width)
        top, left = (self._height - inner_height) // 2, (self._width - inner_width) // 2
        inner = self._resized[top : top + inner_height, left : left + inner_width]
        self._resize_into(picture, inner)
        return self._resized

    def _resize_into(self, picture: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
        size = (target.shape[1], target.shape[0])
        if picture.shape == target.shape:
            target[:] = picture
        else:
            self._cv2.resize(
                np.ascontiguousarray(picture),
                size,
                dst=target,
                interpolation=self._cv2.INTER_LINEAR,
            )


def _build_tables(spec: InputSpec) -> NDArray[np.float32]:
    """Returns [C, 256] float32: the tensor's value of each pixel value, by prepare's arithmetic."""
    std = np.asarray(spec.std, np.float32)
    factor = np.float32(spec.pixel_scale) / std
    offset = np.asarray(spec.mean, np.float32) / std
    pixels = np.arange(256, dtype=np.uint8)[None, :]
    tables = pixels * factor[:, None] - offset[:, None]
    return np.asarray(tables, np.float32)
