"""Writes text on pictures, in OpenCV 5's outline font or in the strokes of OpenCV 4."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Color = tuple[int, int, int]

STROKE_HEIGHT_PX = 22.0
REGULAR, BOLD = 450, 700


def write_text(
    picture: NDArray[np.uint8],
    text: str,
    left_px: float,
    baseline_px: float,
    *,
    size_px: int,
    color: Color = (255, 255, 255),
    is_bold: bool = False,
) -> None:
    """Writes one line into the picture.

    Args:
        picture: [H, W, 3] uint8 BGR, changed in place.
        text: what to write.
        left_px: where the text begins.
        baseline_px: row on which the letters stand.
        size_px: height of a line of text.
        color: BGR.
        is_bold: heavier letters.
    """
    import cv2

    origin = (round(left_px), round(baseline_px))
    if hasattr(cv2, "FontFace"):
        weight = BOLD if is_bold else REGULAR
        cv2.putText(picture, text, origin, color, _font(cv2), size_px, weight)
        return
    scale, thickness = size_px / STROKE_HEIGHT_PX * 0.7, 2 if is_bold else 1
    cv2.putText(
        picture, text, origin, cv2.FONT_HERSHEY_DUPLEX, scale, color, thickness, cv2.LINE_AA
    )


def measure_text(text: str, *, size_px: int, is_bold: bool = False) -> int:
    """Returns the width of a line of text in pixels."""
    import cv2

    if hasattr(cv2, "FontFace"):
        weight = BOLD if is_bold else REGULAR
        box = cv2.getTextSize((10000, 1000), text, (0, 500), _font(cv2), size_px, weight)
        return int(box[0] + box[2])
    scale, thickness = size_px / STROKE_HEIGHT_PX * 0.7, 2 if is_bold else 1
    return int(cv2.getTextSize(text, cv2.FONT_HERSHEY_DUPLEX, scale, thickness)[0][0])


def _font(cv2: Any) -> Any:
    return cv2.FontFace("sans")
