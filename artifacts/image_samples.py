"""Samples from a folder of pictures."""

import logging
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError, MissingInputsError
from artifacts.file_kind import printable
from artifacts.input_spec import InputSpec
from artifacts.samples import Samples, TensorShape, spread_indices

_log = logging.getLogger(__name__)
_JPEG_START, _JPEG_END = b"\xff\xd8", b"\xff\xd9"
_JPEG_SCAN = 0xDA
_PNG_START, _PNG_END = b"\x89PNG", b"IEND"
_COLOURS = 3


def find_files(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Returns files with these suffixes in order: of a folder, or else of its sub-folders."""
    for pattern in ("*", "**/*"):
        found = sorted(path for path in folder.glob(pattern) if _is_one(path, folder, suffixes))
        if found:
            return found
    return []


def _is_one(path: Path, folder: Path, suffixes: Collection[str]) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path.suffix.lower() in suffixes and not is_hidden and not path.is_dir()


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Reads a picture as [H, W, 3] uint8 in BGR order.

    Grey becomes three channels, of 16 bits the upper 8 are kept (a warning says so), alpha is
    dropped and the EXIF orientation is applied.

    Raises:
        InputError: the file is missing, truncated or no picture.
    """
    import cv2

    label = printable(path)
    if not path.is_file():
        raise InputError(f"picture {label} is missing or not a regular file", "a readable picture")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read picture {label}: {error.strerror}") from error
    image = None
    if content and _is_complete(content):
        try:
            image = cv2.imdecode(
                np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH
            )
        except cv2.error:
            image = None
    if image is None:
        raise InputError(
            f"picture {label} is truncated, damaged or not a picture ({len(content)} bytes)",
            "a picture that OpenCV reads",
            "replace or remove it",
        )
    if image.dtype == np.uint16:
        _warn_of_depth(printable(path.parent))
        image = image >> 8
    elif image.dtype != np.uint8:
        raise InputError(
            f"picture {label} has {image.dtype} pixels",
            "8 or 16 bits a channel",
            "give .npy files in the input's own scaling instead",
        )
    return np.asarray(image, np.uint8)


@cache
def _warn_of_depth(folder: str) -> None:
    """Says once for a folder what is lost."""
    _log.warning(
        "the pictures in %s have 16 bits a channel, of which the upper 8 are kept; where the "
        "network was trained on all, give .npy files in the input's own scaling",
        folder,
    )


def _is_complete(content: bytes) -> bool:
    """OpenCV fills the missing part of a truncated JPEG with grey and only prints a warning."""
    if content.startswith(_JPEG_START):
        return content.rfind(_JPEG_END) > _find_scan(content)
    if content.startswith(_PNG_START):
        return content.rfind(_PNG_END) > 0
    return True


def _find_scan(content: bytes) -> int:
    """Returns where the picture's own scan starts, behind any thumbnail in the header."""
    position = 2
    while position + 4 <= len(content) and content[position] == 0xFF:
        if content[position + 1] == _JPEG_SCAN:
            return position
        position += 2 + int.from_bytes(content[position + 2 : position + 4], "big")
    return len(content)


class ImageSamples(Samples):
    """One sample per picture, for a network with one picture as input.

    Args:
        folder: the folder that names are relative to.
        paths: the pictures, in order.
        inputs: the network's inputs; exactly one, [1, 3 or 1, H, W] or [1, H, W, 3 or 1], or a
            picture without a batch (torchvision's detectors), [3, H, W] or [H, W, 3].
        spec: how pixels become the tensor.
        limit: use at most this many.
    """

    def __init__(
        self,
        folder: Path,
        paths: Sequence[Path],
        inputs: dict[str, TensorShape],
        spec: InputSpec,
        limit: int | None,
    ) -> None:
        self._paths = [paths[index] for index in spread_indices(len(paths), limit)]
        super().__init__([printable(path.relative_to(folder)) for path in self._paths])
        self._name, self._tensor = _picture_input(inputs)
        shape = _with_batch(self._tensor.shape)
        self._is_channels_last = _is_channels_last(shape)
        channels, self._height, self._width = shape[1:]
        if self._is_channels_last:
            self._height, self._width, channels = shape[1:]
        self._spec = spec
        _check_fit(self._name, self._tensor, channels, spec)

    @property
    def extremes(self) -> tuple[dict[str, NDArray[Any]], ...]:
        """A black and a white picture as samples."""
        return tuple(self._prepare(np.full((1, 1, 3), level, np.uint8)) for level in (0, 255))

    def _read(self, index: int) -> dict[str, NDArray[Any]]:
        return self._prepare(read_picture(self._paths[index]))

    def _prepare(self, image: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        values = self._spec.prepare(image, self._height, self._width)
        if self._is_channels_last:
            values = np.ascontiguousarray(values.transpose(1, 2, 0))
        return {self._name: values.reshape(self._tensor.shape).astype(self._tensor.dtype)}


def _with_batch(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of a picture that comes without a batch axis as if it had one."""
    has_colours = len(shape) == 3 and _COLOURS in (shape[0], shape[2])
    return (1, *shape) if has_colours else shape


def _is_picture_like(tensor: TensorShape) -> bool:
    shape = _with_batch(tensor.shape)
    return len(shape) == 4 and bool({1, _COLOURS} & {shape[1], shape[3]})


def _picture_input(inputs: dict[str, TensorShape]) -> tuple[str, TensorShape]:
    if len(inputs) != 1:
        error = MissingInputsError(
            f"the network has {len(inputs)} inputs ({', '.join(inputs)})",
            "one input for a folder of pictures",
            "give an .npz with one array per input, or a folder with a sub-folder for each; what "
            "never changes (the mean and variance of Keras' Normalization) should be exported as "
            "constants",
        )
        error.missing = tuple(name for name, item in inputs.items() if not _is_picture_like(item))
        raise error
    name, tensor = next(iter(inputs.items()))
    shape = _with_batch(tensor.shape)
    if shape[:1] != (1,):
        raise InputError(
            f"input '{name}' has the shape {list(tensor.shape)}",
            "a batch of 1 for pictures one by one",
            "export the network with batch 1, or give an .npz",
        )
    if not (len(shape) == 4 and (shape[1] in (1, _COLOURS) or _is_channels_last(shape))):
        raise InputError(
            f"input '{name}' has the shape {list(tensor.shape)}",
            "[1, 3, H, W] or [1, 1, H, W] for a folder of pictures",
            "give an .npz instead",
        )
    return name, tensor


def _is_channels_last(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and shape[1] not in (1, _COLOURS) and shape[3] in (1, _COLOURS)


def _check_fit(name: str, tensor: TensorShape, channels: int, spec: InputSpec) -> None:
    if len(spec.mean) != channels:
        raise InputError(
            f"input '{name}' has {channels} channels and the input spec {len(spec.mean)}",
            "the same number",
            "give --mean and --std with one number per channel",
        )
    if np.dtype(tensor.dtype).kind == "f":
        return
    if tensor.dtype != "uint8" or spec.pixel_scale != 1 or any(spec.mean) or set(spec.std) != {1}:
        raise InputError(
            f"input '{name}' is {tensor.dtype}, which cannot hold scaled pixels",
            "a float input, or uint8 with --pixel-scale 1",
        )
