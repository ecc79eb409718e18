"""Labelled pictures in the format of COCO detection (Lin et al., 2014)."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.file_kind import printable, require_file
from perception.data.picture import read_picture
from perception.scene.sample import BOX_CLASSES, IGNORE_INDEX, Scene

COCO_CLASSES: Mapping[str, str] = {
    "car": "car",
    "van": "car",
    "truck": "truck",
    "bus": "truck",
    "person": "pedestrian",
    "pedestrian": "pedestrian",
}
"""Which of `BOX_CLASSES` a category counts as; others are background."""


_LARGEST_PX = 1e7


class CocoDataset:
    """Pictures with boxes: a folder of pictures and one annotation file.

    Everything but the pictures' content is checked when it is opened. Masks are all ignored and
    depths unknown. Boxes are cut at the picture's edges; those that are then empty, crowds
    (`iscrowd`) and categories that `classes` does not name are left out.

    Args:
        images: folder that the annotation file's `file_name` entries are relative to.
        annotations: the annotation file (JSON with images, annotations and categories).
        classes: category name to one of `BOX_CLASSES`.

    Raises:
        InputError: a file is missing or no valid annotation file; a picture, category or image
            number is unknown; no category has a class.
    """

    def __init__(
        self,
        images: Path | str,
        annotations: Path | str,
        classes: Mapping[str, str] = COCO_CLASSES,
    ) -> None:
        folder = Path(images)
        if not folder.is_dir():
            raise InputError(f"{printable(folder)} is no folder", "the folder of the pictures")
        self.annotations = Path(annotations)
        content = self._load()
        label_of_id = self._read_categories(content["categories"], classes)
        pictures = self._read_images(content["images"], folder)
        boxes = self._read_annotations(content["annotations"], pictures, label_of_id)
        self._items = [(*pictures[number], *boxes[number]) for number in pictures]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Scene:
        """Reads picture `index`, in the order of the annotation file.

        Raises:
            IndexError: the index is outside 0 to length - 1.
            InputError: the picture is corrupt or of another size than the annotations say.
        """
        if not 0 <= index < len(self._items):
            raise IndexError(f"picture {index} of {len(self._items)}")
        path, size, boxes, labels = self._items[index]
        image = read_picture(path)
        height, width = image.shape[:2]
        if size not in (None, (height, width)):
            raise InputError(
                f"{printable(path)} is {height}x{width}",
                f"{size[0]}x{size[1]} as {printable(self.annotations)} says (height x width)",
            )
        clipped = np.clip(boxes, 0, np.array([width, height, width, height], np.float32))
        kept = (clipped[:, 2] > clipped[:, 0]) & (clipped[:, 3] > clipped[:, 1])
        return Scene(
            image=image,
            boxes=clipped[kept],
            labels=labels[kept],
            mask=np.full((height, width), IGNORE_INDEX, np.uint8),
            depth=np.full((height, width), np.nan, np.float32),
        )

    def __iter__(self) -> Iterator[Scene]:
        return (self[i] for i in range(len(self)))

    def _wrong(self, what: str, expected: str) -> InputError:
        return InputError(f"{printable(self.annotations)}: {what}", expected)

    def _load(self) -> dict[str, list[dict[str, Any]]]:
        path = require_file(self.annotations, "a COCO annotation file")
        try:
            content = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"not JSON ({error})", "a COCO annotation file") from error
        if not isinstance(content, dict):
            raise self._wrong("not a JSON object", "a COCO annotation file")
        for key in ("images", "annotations", "categories"):
            part = content.get(key)
            if not isinstance(part, list) or not all(isinstance(entry, dict) for entry in part):
                raise self._wrong(f"no list of objects '{key}'", "images, annotations, categories")
        if not content["images"]:
            raise self._wrong("names no picture", "at least one entry in images")
        return content

    def _read_categories(
        self, entries: list[dict[str, Any]], classes: Mapping[str, str]
    ) -> dict[int, int | None]:
        for target in classes.values():
            if target not in BOX_CLASSES:
                raise InputError(f"unknown class '{target}'", f"one of {', '.join(BOX_CLASSES)}")
        labels: dict[int, int | None] = {}
        names = []
        for entry in entries:
            name = entry.get("name")
            if not isinstance(name, str):
                raise self._wrong(f"category {entry!r:.60} has no name", "a text")
            known = classes.get(name)
            names.append(name)
            labels[self._number(entry, "id")] = BOX_CLASSES.index(known) if known else None
        if all(label is None for label in labels.values()):
            raise self._wrong(
                f"none of its categories ({', '.join(names)[:80]}) has a class",
                f"at least one of {', '.join(classes)}",
            )
        return labels

    def _read_images(
        self, entries: list[dict[str, Any]], folder: Path
    ) -> dict[int, tuple[Path, tuple[int, int] | None]]:
        pictures: dict[int, tuple[Path, tuple[int, int] | None]] = {}
        for entry in entries:
            number, name = self._number(entry, "id"), entry.get("file_name")
            if not isinstance(name, str) or not name:
                raise self._wrong(f"image {number} has no file_name", "a path in the folder")
            if number in pictures:
                raise self._wrong(f"image {number} is there twice", "each id once")
            inner = PurePosixPath(name)
            if inner.is_absolute() or ".." in inner.parts:
                raise self._wrong(f"file_name {name!r} leaves the folder", "a path inside it")
            path = require_file(folder / inner, f"picture {number} of {self.annotations.name}")
            size = None
            if "height" in entry and "width" in entry:
                size = (self._number(entry, "height"), self._number(entry, "width"))
            pictures[number] = (path, size)
        return pictures

    def _read_annotations(
        self,
        entries: list[dict[str, Any]],
        pictures: Iterable[int],
        label_of_id: dict[int, int | None],
    ) -> dict[int, tuple[NDArray[np.float32], NDArray[np.int64]]]:
        found: dict[int, list[tuple[list[float], int]]] = {number: [] for number in pictures}
        for entry in entries:
            picture = self._number(entry, "image_id")
            category = self._number(entry, "category_id")
            if picture not in found:
                raise self._wrong(f"an annotation has the unknown image_id {picture}", "an image")
            if category not in label_of_id:
                raise self._wrong(
                    f"an annotation has the unknown category_id {category}",
                    f"one of {', '.join(map(str, sorted(label_of_id)[:20]))}",
                )
            label = label_of_id[category]
            corners = self._corners(entry)
            if label is not None and not entry.get("iscrowd"):
                found[picture].append((corners, label))
        return {
            number: (
                np.array([corners for corners, _ in items], np.float32).reshape(-1, 4),
                np.array([label for _, label in items], np.int64),
            )
            for number, items in found.items()
        }

    def _number(self, entry: dict[str, Any], key: str) -> int:
        value = entry.get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(f"'{key}' of {entry!r:.60} is {value!r:.20}", "a whole number")
        return value

    def _corners(self, entry: dict[str, Any]) -> list[float]:
        box = entry.get("bbox")
        if (
            not isinstance(box, list)
            or len(box) != 4
            or not all(isinstance(v, int | float) and abs(v) < _LARGEST_PX for v in box)
        ):
            raise self._wrong(f"bbox {box!r:.60}", "[x, y, width, height] in pixels")
        x, y, width, height = (float(value) for value in box)
        if width < 0 or height < 0:
            raise self._wrong(f"bbox {box!r:.60}", "a width and height of at least 0")
        return [x, y, x + width, y + height]
