"""Reads one picture file of any depth and number of channels."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.file_kind import printable, require_file
from artifacts.samples import PICTURE_SUFFIXES


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Reads a picture as [H, W, 3] BGR.

    Grey pictures are repeated over the channels, transparency is dropped, and of 16 bits the upper
    8 are kept. An orientation tag is not applied: labels refer to the stored pixels.

    Raises:
        InputError: the file is missing, no picture, cut off, or has neither 8 nor 16 bits.
    """
    pixels = read_pixels(path)
    if pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
    if pixels.ndim == 2:
        return np.repeat(pixels[..., None], 3, axis=2)
    return np.ascontiguousarray(pixels[..., :3])


def read_pixels(path: Path) -> NDArray:
    """Reads the stored values of a picture: [H, W] or [H, W, 3 or 4] of uint8 or uint16.

    Raises:
        InputError: as `read_picture`.
    """
    content = require_file(path, "a picture").read_bytes()
    expected = f"a picture ({', '.join(s[1:] for s in PICTURE_SUFFIXES)})"
    pixels = None if _is_cut_off(content) else _decode(content)
    if pixels is None:
        fix = "copy it again or take it out"
        raise InputError(f"{printable(path)} is corrupt or no picture", expected, fix)
    if pixels.dtype not in (np.uint8, np.uint16):
        raise InputError(f"{printable(path)} has {pixels.dtype} pixels", "8 or 16 bits a channel")
    if pixels.ndim == 3 and pixels.shape[2] not in (3, 4):
        pixels = pixels[..., 0]
    return np.asarray(pixels)


def _decode(content: bytes) -> NDArray | None:
    """Decodes a picture; OpenCV's own complaints are kept off stderr."""
    level = cv2.utils.logging.getLogLevel()
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        pixels: NDArray | None = cv2.imdecode(
            np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED
        )
    except cv2.error:
        return None
    finally:
        cv2.utils.logging.setLogLevel(level)
    return pixels


def _is_cut_off(content: bytes) -> bool:
    """Whether a JPEG or PNG file lacks its end; the decoder would fill the rest with grey."""
    if content.startswith(b"\xff\xd8"):
        return content.find(b"\xff\xd9", max(content.rfind(b"\xff\xda"), 0)) < 0
    if content.startswith(b"\x89PNG"):
        return content.rfind(b"IEND") < 0
    return False
