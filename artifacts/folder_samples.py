"""Samples from folders: of pictures or of arrays, and with a sub-folder for each of several inputs.

`left/0001.png` and `right/0001.png` are one sample; what is no picture lies in `pose/0001.npy`.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.lib import format as npy_format
from numpy.typing import NDArray

from artifacts.errors import InputError, UnsafeFileError
from artifacts.file_kind import printable
from artifacts.image_samples import ImageSamples, find_files
from artifacts.input_spec import InputSpec
from artifacts.samples import PICTURE_SUFFIXES, Samples, TensorShape, spread_indices

_ARRAY_SUFFIX = ".npy"


def has_folders(folder: Path, inputs: Collection[str]) -> bool:
    """Whether a folder has a sub-folder called as one of several inputs."""
    return len(inputs) > 1 and any(_locate(folder, name).is_dir() for name in inputs)


def _locate(folder: Path, name: str) -> Path:
    """Returns the sub-folder of an input; a name with slashes leads further in, never out."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return folder.joinpath(*parts) if parts else folder / "(unnamed)"


def open_folder(
    folder: Path, inputs: dict[str, TensorShape], spec: InputSpec, limit: int | None
) -> Samples:
    """Opens a folder of pictures, or without any, of `.npy` files in the input's shape and scaling.

    Args:
        folder: the files are in it, or in its sub-folders.
        inputs: the network's inputs; exactly one.
        spec: how pixels become the tensor.
        limit: use at most this many samples.

    Raises:
        InputError: there are neither, or they do not fit.
    """
    pictures = find_files(folder, PICTURE_SUFFIXES)
    arrays = find_files(folder, (_ARRAY_SUFFIX,)) if len(inputs) == 1 and not pictures else []
    if arrays:
        ((name, tensor),) = inputs.items()
        return ArrayFiles(folder, arrays, name, tensor, limit)
    if not pictures:
        raise InputError(
            f"folder {printable(folder)} has no picture", f"files {' '.join(PICTURE_SUFFIXES)}"
        )
    return ImageSamples(folder, pictures, inputs, spec, limit)


def read_file_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shape of the first `.npy` file of a folder, or of each of its sub-folders.

    Those with pictures have none, since these are resized.

    Returns:
        shape by the folder's name, as the file has it.

    Raises:
        InputError: such a file is damaged.
    """
    files = [path for path in folder.glob("*") if path.is_file()]
    parts = [folder] if files else sorted(path for path in folder.glob("*") if path.is_dir())
    found = {}
    for part in parts:
        arrays = find_files(part, (_ARRAY_SUFFIX,))
        if arrays and not find_files(part, PICTURE_SUFFIXES):
            found[part.name] = _load(arrays[0], f"array {printable(arrays[0])}").shape
    return found


class FolderSamples(Samples):
    """One sample for each name that files have in the sub-folders of all inputs.

    Args:
        folder: the folder of the sub-folders.
        inputs: the network's inputs by name.
        spec: how pixels become a tensor, for all inputs with pictures.
        limit: use at most this many samples.
        optional: inputs that have no sub-folder where the samples do not say their values.

    Raises:
        InputError: a sub-folder is missing, or has other names than the first.
    """

    def __init__(
        self,
        folder: Path,
        inputs: Mapping[str, TensorShape],
        spec: InputSpec,
        limit: int | None,
        optional: Collection[str] = (),
    ) -> None:
        self._parts = {
            name: _open_part(folder, name, tensor, spec, tuple(inputs))
            for name, tensor in inputs.items()
            if name not in optional or _locate(folder, name).is_dir()
        }
        names = _match_names(folder, self._parts)
        self._chosen = spread_indices(len(names), limit)
        super().__init__([names[index] for index in self._chosen])

    @property
    def extremes(self) -> tuple[dict[str, NDArray[Any]], ...]:
        """A black and a white sample; inputs without pictures have those of the first one."""
        ends = [ends for part in self._parts.values() if (ends := part.extremes)]
        if not ends:
            return ()
        first = self[0]
        return tuple(
            {**first, **{name: array for pair in ends for name, array in pair[end].items()}}
            for end in (0, 1)
        )

    def _read(self, index: int) -> dict[str, NDArray[Any]]:
        place = self._chosen[index]
        return {name: part[place][name] for name, part in self._parts.items()}


class ArrayFiles(Samples):
    """The arrays of one input, a `.npy` file each.

    Args:
        folder: that their names are relative to.
        paths: the files, in order.
        name: of the input.
        tensor: its shape and type.
        limit: use at most this many.
    """

    def __init__(
        self,
        folder: Path,
        paths: Sequence[Path],
        name: str,
        tensor: TensorShape,
        limit: int | None,
    ) -> None:
        self._paths = [paths[index] for index in spread_indices(len(paths), limit)]
        super().__init__([printable(path.relative_to(folder)) for path in self._paths])
        self._name, self._tensor = name, tensor

    def _read(self, index: int) -> dict[str, NDArray[Any]]:
        label = f"array {printable(self._paths[index])}"
        array = _load(self._paths[index], label)
        expected = f"{list(self._tensor.row_shape)} {self._tensor.dtype}"
        if array.shape not in (self._tensor.row_shape, self._tensor.shape):
            raise InputError(f"{label} has the shape {list(array.shape)}", expected)
        if not self._tensor.takes(array.dtype):
            raise InputError(f"{label} is {array.dtype}", expected, "convert it with .astype")
        return {self._name: array.astype(self._tensor.dtype).reshape(self._tensor.shape)}


def _open_part(
    folder: Path, name: str, tensor: TensorShape, spec: InputSpec, inputs: tuple[str, ...]
) -> Samples:
    """Returns the samples of one input."""
    own = _locate(folder, name)
    if not own.is_dir():
        raise InputError(
            f"folder {printable(folder)} has no sub-folder for input '{name}'",
            f"one for each input: {', '.join(inputs)}",
            "put pictures or .npy files into it, of the same names as in the others",
        )
    return open_folder(own, {name: tensor}, spec, None)


def _match_names(folder: Path, parts: Mapping[str, Samples]) -> list[str]:
    """Returns the names that the files of all inputs have, without their suffix."""
    stems = {
        name: [Path(item).with_suffix("").as_posix() for item in part.names]
        for name, part in parts.items()
    }
    first, *others = stems
    for other in others:
        alone = sorted(set(stems[first]) ^ set(stems[other]))
        if alone or len(stems[first]) != len(stems[other]):
            example = f", '{alone[0]}' in one of them alone" if alone else ""
            raise InputError(
                f"sub-folder '{first}' of {printable(folder)} has {len(stems[first])} files and "
                f"'{other}' {len(stems[other])}{example}",
                "files of the same names, so that they are one sample",
            )
    return stems[first]


def _load(path: Path, label: str) -> NDArray[Any]:
    try:
        with path.open("rb") as stream:
            array: NDArray[Any] = npy_format.read_array(stream, allow_pickle=False)
    except (OSError, ValueError) as error:
        if "allow_pickle" in str(error):
            raise UnsafeFileError(f"{label} holds Python objects", "numbers") from error
        raise InputError(f"{label} is damaged or no .npy file", "what numpy.save writes") from error
    return array
