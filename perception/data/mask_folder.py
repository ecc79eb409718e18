"""Pictures with masks in two folders, as in Cityscapes and CamVid."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.file_kind import printable
from artifacts.samples import PICTURE_SUFFIXES
from perception.data.picture import read_picture, read_pixels
from perception.scene.sample import IGNORE_INDEX, MASK_CLASSES, Scene

IGNORE = "ignore"
"""The class of pixels that count neither as right nor as wrong."""

Colour = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class MaskFormat:
    """How a data set names its files and writes its classes.

    Attributes:
        classes: what stands in the mask, a number or a colour (red, green, blue), to one of
            `MASK_CLASSES` or `IGNORE`. All keys are of one kind.
        image_ending: what follows the common part of a picture's name, before the suffix.
        mask_ending: the same for masks; other files in the folder are passed over.
        has_colours: whether colours stand in the mask.

    Raises:
        InputError: no classes, an unknown class, or numbers mixed with colours.
    """

    classes: Mapping[int | Colour, str]
    image_ending: str = ""
    mask_ending: str = ""
    has_colours: bool = field(init=False)

    def __post_init__(self) -> None:
        for name in self.classes.values():
            if name not in (*MASK_CLASSES, IGNORE):
                raise InputError(
                    f"unknown class '{name}'", f"one of {', '.join((*MASK_CLASSES, IGNORE))}"
                )
        kinds = {isinstance(key, tuple) for key in self.classes}
        if len(kinds) != 1:
            raise InputError("the classes of a mask format", "all numbers or all colours")
        object.__setattr__(self, "has_colours", kinds.pop())


CITYSCAPES = MaskFormat(
    classes={
        **dict.fromkeys((0, 1, 2, 3, 4, 5, 6, 9, 10, 255), IGNORE),
        **dict.fromkeys(range(11, 24), "background"),
        7: "drivable",
        8: "sidewalk",
        **dict.fromkeys((24, 25), "pedestrian"),
        **dict.fromkeys(range(26, 34), "vehicle"),
    },
    image_ending="_leftImg8bit",
    mask_ending="_gtFine_labelIds",
)
"""Cityscapes (Cordts et al., 2016), folders leftImg8bit/SPLIT and gtFine/SPLIT."""

CAMVID = MaskFormat(
    classes={
        **dict.fromkeys((0, 1, 2, 5, 6, 7), "background"),
        3: "drivable",
        4: "sidewalk",
        8: "vehicle",
        **dict.fromkeys((9, 10), "pedestrian"),
        11: IGNORE,
    }
)
"""CamVid (Brostow et al., 2008) with the 11 classes of SegNet, folders train and trainannot."""


class MaskFolderDataset:
    """Pictures and masks that belong together by name, in the order of their names.

    Subfolders are read too. Boxes are empty and depths unknown, so use it for segmentation only.

    Args:
        images: folder of pictures.
        masks: folder of masks, one per picture, of the picture's size.
        mask_format: file names and classes.

    Raises:
        InputError: a folder is missing or has no pictures, or a picture or mask lacks its partner.
    """

    def __init__(self, images: Path | str, masks: Path | str, mask_format: MaskFormat) -> None:
        self.mask_format = mask_format
        pictures = _list_files(Path(images), mask_format.image_ending)
        partners = _list_files(Path(masks), mask_format.mask_ending)
        _require_partners(pictures, partners, "mask")
        _require_partners(partners, pictures, "picture")
        self._pairs = [(pictures[name], partners[name]) for name in sorted(pictures)]

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> Scene:
        """Reads pair `index`.

        Raises:
            IndexError: the index is outside 0 to length - 1.
            InputError: a file is corrupt, the sizes differ, or the mask holds an unknown class.
        """
        if not 0 <= index < len(self._pairs):
            raise IndexError(f"pair {index} of {len(self._pairs)}")
        picture, partner = self._pairs[index]
        image = read_picture(picture)
        mask = read_mask(partner, self.mask_format)
        if mask.shape != image.shape[:2]:
            raise InputError(
                f"mask {printable(partner)} is {mask.shape[0]}x{mask.shape[1]}",
                f"{image.shape[0]}x{image.shape[1]} as its picture (height x width)",
            )
        return Scene(
            image=image,
            boxes=np.zeros((0, 4), np.float32),
            labels=np.zeros(0, np.int64),
            mask=mask,
            depth=np.full(mask.shape, np.nan, np.float32),
        )

    def __iter__(self) -> Iterator[Scene]:
        return (self[i] for i in range(len(self)))


def read_mask(path: Path, mask_format: MaskFormat) -> NDArray[np.uint8]:
    """Reads a mask as [H, W] indices into `MASK_CLASSES`.

    Raises:
        InputError: the file is corrupt or holds a number or colour that the format lacks.
    """
    pixels = read_pixels(path)
    values = _colour_numbers(path, pixels) if mask_format.has_colours else _ids(path, pixels)
    found, position = np.unique(values, return_inverse=True)
    table = {_number(key): name for key, name in mask_format.classes.items()}
    for value in found.tolist():
        if value not in table:
            shown = f"colour #{value:06x}" if mask_format.has_colours else f"class number {value}"
            share = float((values == value).mean())
            raise InputError(
                f"mask {printable(path)} holds the unknown {shown} ({share:.1%} of its pixels)",
                "only numbers and colours that the mask format names",
                f"map it to a class or to '{IGNORE}'",
            )
    lookup = [_index(table[value]) for value in found.tolist()]
    return np.array(lookup, np.uint8)[position].reshape(values.shape)


def _index(name: str) -> int:
    return IGNORE_INDEX if name == IGNORE else MASK_CLASSES.index(name)


def _number(key: int | Colour) -> int:
    return key if isinstance(key, int) else (key[0] << 16) | (key[1] << 8) | key[2]


def _ids(path: Path, pixels: NDArray) -> NDArray:
    if pixels.ndim == 3:
        if (pixels[..., :3] != pixels[..., :1]).any():
            raise InputError(
                f"mask {printable(path)} is in colour",
                "a grey picture of class numbers",
                "give a mask format whose classes are colours",
            )
        return pixels[..., 0]
    return pixels


def _colour_numbers(path: Path, pixels: NDArray) -> NDArray:
    if pixels.ndim != 3 or pixels.dtype != np.uint8:
        raise InputError(f"mask {printable(path)} is not in 8-bit colour", "a colour mask")
    blue, green, red = (pixels[..., i].astype(np.int32) for i in range(3))
    return (red << 16) | (green << 8) | blue


def _list_files(folder: Path, ending: str) -> dict[str, Path]:
    if not folder.is_dir():
        raise InputError(f"{printable(folder)} is no folder", "a folder of pictures")
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in PICTURE_SUFFIXES and path.stem.endswith(ending):
            relative = path.relative_to(folder).with_suffix("").as_posix()
            name = relative.removesuffix(ending)
            if name in files:
                raise InputError(
                    f"{printable(path)} and {files[name].name} share a name", "one file per name"
                )
            files[name] = path
    if not files:
        raise InputError(
            f"{printable(folder)} holds no picture whose name ends in '{ending}'"
            if ending
            else f"{printable(folder)} holds no picture",
            f"files like NAME{ending}.png",
        )
    return files


def _require_partners(files: dict[str, Path], partners: dict[str, Path], kind: str) -> None:
    alone = sorted(files.keys() - partners.keys())
    if alone:
        raise InputError(
            f"{len(alone)} of {len(files)} files have no {kind}, the first is "
            f"{printable(files[alone[0]])}",
            f"a {kind} of the same name for each",
        )
