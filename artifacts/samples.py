"""Calibration and comparison data: one dictionary of network inputs per sample, read lazily."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.file_kind import describe_absence, printable
from artifacts.input_spec import InputSpec

PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_VIDEO_SUFFIXES = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpg", ".ts", ".webm")
_WHAT = f"a folder of pictures ({' '.join(PICTURE_SUFFIXES)}) or of .npy files, or an .npz file"


@dataclass(frozen=True)
class TensorShape:
    """Shape and numpy type of one network input.

    Attributes:
        shape: static shape, the batch first.
        dtype: numpy's name of the element type ("float32").
        takes_bytes: whether bytes are taken for a float input, as the numbers 0 to 255: the network
            scales them itself.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    takes_bytes: bool = False

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one sample in a file: a batch of 1 has no axis of its own there."""
        return self.shape[1:] if self.shape[:1] == (1,) else self.shape

    def takes(self, dtype: np.dtype[Any]) -> bool:
        """Whether numbers of another type become the input's without a loss that matters."""
        wanted = np.dtype(self.dtype)
        if wanted.kind == "f":
            return dtype.kind == "f" or (self.takes_bytes and dtype == np.uint8)
        return dtype == wanted or (
            {dtype.kind, wanted.kind} <= {"i", "u"} and np.can_cast(dtype, wanted)
        )


class Samples(Sequence[dict[str, NDArray[Any]]]):
    """Samples in a fixed order; each is read when it is asked for, and checked to be finite.

    Attributes:
        names: per sample, the file (and row) it comes from.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def extremes(self) -> tuple[dict[str, NDArray[Any]], ...]:
        """A black and a white picture as samples; none where samples do not know what these are."""
        return ()

    @overload
    def __getitem__(self, index: int) -> dict[str, NDArray[Any]]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, NDArray[Any]]]: ...
    def __getitem__(
        self, index: int | slice
    ) -> dict[str, NDArray[Any]] | list[dict[str, NDArray[Any]]]:
        """Reads a sample: per input name an array of the network's shape and type.

        Raises:
            InputError: the sample cannot be read, or has values that are NaN or infinite.
        """
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return [self._checked(position) for position in positions]
        return self._checked(positions)

    def _checked(self, index: int) -> dict[str, NDArray[Any]]:
        feeds = self._read(index)
        for name, values in feeds.items():
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise InputError(
                    f"sample {self.names[index]} has values that are NaN or infinite "
                    f"for input '{name}'",
                    "finite numbers",
                )
        return feeds

    @abstractmethod
    def _read(self, index: int) -> dict[str, NDArray[Any]]:
        """Reads sample `index`, which is within range."""


def open_samples(
    path: Path | str,
    inputs: dict[str, TensorShape],
    spec: InputSpec,
    *,
    limit: int | None = None,
    optional: Collection[str] = (),
) -> Samples:
    """Opens calibration data for a network.

    Args:
        path: a folder of pictures, of `.npy` files, or of a sub-folder with either for each of
            several inputs (`artifacts.folder_samples`); one picture; or an `.npz` with one array
            per network input, whose first axis counts samples and whose other axes are the input's
            (a batch of 1 is left out; several cameras or points without a batch are not).
        inputs: the network's inputs by name.
        spec: how pixels become the tensor; `.npz` arrays are taken as they are.
        limit: use at most this many samples, spread evenly over all; None for all.
        optional: inputs that samples have only where the `.npz` has an array of their name.

    Returns:
        the samples in the order of their names (of the rows for `.npz`).

    Raises:
        InputError: nothing fitting is there; the message says what was expected.
        UnsafeFileError: the `.npz` contains pickled objects.
    """
    from artifacts.folder_samples import FolderSamples, has_folders, open_folder
    from artifacts.image_samples import ImageSamples
    from artifacts.npz_samples import NpzSamples

    path = Path(path)
    if limit is not None and limit < 1:
        raise InputError(f"the limit is {limit} samples", "at least 1")
    for name, item in inputs.items():
        if 0 in item.shape:
            raise InputError(f"input '{name}' has the shape {list(item.shape)}", "a static shape")
    problem = describe_absence(path)
    if problem:
        raise InputError(f"data {printable(path)} {problem}", _WHAT)
    if path.is_file() and path.suffix.lower() == ".npz":
        return NpzSamples(path, inputs, limit, optional, spec)
    needed = {name: item for name, item in inputs.items() if name not in optional}
    if path.is_dir() and has_folders(path, inputs):
        return FolderSamples(path, inputs, spec, limit, optional)
    if path.is_dir():
        return open_folder(path, needed, spec, limit)
    if path.is_file() and path.suffix.lower() in PICTURE_SUFFIXES:
        return ImageSamples(path.parent, [path], needed, spec, limit)
    fix = ""
    if path.suffix.lower() in _VIDEO_SUFFIXES:
        fix = f"take pictures of a video: ffmpeg -i {printable(path)} -vf fps=1 FOLDER/%05d.png"
    raise InputError(f"data {printable(path)} is neither", _WHAT, fix)


def pick_evenly(
    samples: Sequence[dict[str, NDArray[Any]]], limit: int
) -> list[dict[str, NDArray[Any]]]:
    """Returns at most `limit` of the samples, evenly spread and in order."""
    return [samples[index] for index in spread_indices(len(samples), limit)]


def spread_indices(count: int, limit: int | None) -> list[int]:
    """Returns at most `limit` of the indices 0..count-1, evenly spread and in order.

    One is taken of each of `limit` parts of equal length, at a random place, the same each time: at
    equal distances all would be of one camera where the pictures of several take turns.
    """
    if limit is None or limit >= count:
        return list(range(count))
    bounds = [part * count // limit for part in range(limit + 1)]
    draw = Random(0)
    return [draw.randrange(first, after) for first, after in pairwise(bounds)]
