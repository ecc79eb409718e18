"""The input spec: how the pixels of a picture become a network's input tensor."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError

COLORS = ("rgb", "bgr")
RESIZES = ("stretch", "letterbox")
LETTERBOX_FILL = 114


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """How pixels become tensors: x = (pixel * pixel_scale - mean) / std, per channel.

    It is stored in every artifact, so that calibration, evaluation and deployment cannot differ.

    Attributes:
        color: channel order of the tensor, "rgb" or "bgr".
        pixel_scale: factor on the pixel values 0..255.
        mean: subtracted after scaling, one per channel in the tensor's order.
        std: divides after the subtraction, one per channel.
        resize: "stretch" to the input's size, or "letterbox" (aspect kept, grey borders).
    """

    color: str = "rgb"
    pixel_scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    resize: str = "stretch"

    def __post_init__(self) -> None:
        if self.color not in COLORS:
            raise InputError(f"color is '{self.color}'", "rgb or bgr")
        if self.resize not in RESIZES:
            raise InputError(f"resize is '{self.resize}'", "stretch or letterbox")
        object.__setattr__(self, "mean", tuple(float(value) for value in self.mean))
        object.__setattr__(self, "std", tuple(float(value) for value in self.std))
        numbers = (self.pixel_scale, *self.mean, *self.std)
        if not all(np.isfinite(numbers)) or self.pixel_scale <= 0 or min(self.std) <= 0:
            raise InputError(
                f"pixel_scale {self.pixel_scale}, mean {self.mean}, std {self.std}",
                "finite numbers, with pixel_scale and std above 0",
            )
        if len(self.mean) != len(self.std):
            raise InputError(
                f"mean has {len(self.mean)} values and std has {len(self.std)}",
                "one of each per channel",
            )

    def prepare(self, image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.float32]:
        """Turns a picture into an input tensor.

        Args:
            image: [H, W, 3] uint8 in BGR order, as OpenCV reads it.
            height: the input's height in pixels.
            width: the input's width in pixels.

        Returns:
            [C, height, width] float32; C is 3, or 1 (luminance) where mean has one value.
        """
        import cv2

        resized = self._fit(image, height, width)
        if len(self.mean) == 1:
            resized = cv2.cvtColor(resized, cv2.COLOR_BGR2GRAY)[..., None]
        elif self.color == "rgb":
            resized = resized[..., ::-1]
        factor = np.float32(self.pixel_scale) / np.asarray(self.std, np.float32)
        offset = np.asarray(self.mean, np.float32) / np.asarray(self.std, np.float32)
        return np.ascontiguousarray(
            (resized * factor - offset).astype(np.float32).transpose(2, 0, 1)
        )

    def _fit(self, image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
        import cv2

        if self.resize == "stretch":
            return np.asarray(_resize(image, height, width))
        ratio = min(height / image.shape[0], width / image.shape[1])
        inner_height = max(1, round(image.shape[0] * ratio))
        inner_width = max(1, round(image.shape[1] * ratio))
        top, left = (height - inner_height) // 2, (width - inner_width) // 2
        return np.asarray(
            cv2.copyMakeBorder(
                _resize(image, inner_height, inner_width),
                top,
                height - inner_height - top,
                left,
                width - inner_width - left,
                cv2.BORDER_CONSTANT,
                value=(LETTERBOX_FILL,) * 3,
            )
        )

    def to_json(self) -> str:
        """Returns the spec as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Builds a spec from a dictionary; unknown keys are refused."""
        unknown = sorted(set(values) - set(cls.__dataclass_fields__))
        if unknown:
            raise InputError(
                f"input spec has the unknown key '{unknown[0]}'",
                f"keys among {', '.join(cls.__dataclass_fields__)}",
            )
        try:
            return cls(**values)
        except InputError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"input spec {values!r} is not valid: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Builds a spec from what `to_json` wrote."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"input spec {text[:60]!r} is not JSON") from error
        if not isinstance(values, dict):
            raise InputError(f"input spec {text[:60]!r}", "a JSON object")
        return cls.from_dict(values)


def _resize(image: NDArray[np.uint8], height: int, width: int) -> Any:
    """Resizes bilinearly, as nearly every training and deployment pipeline does."""
    import cv2

    if image.shape[:2] == (height, width):
        return image
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
