"""What a training learns from, and the scenes it never sees: rendered roads or own pictures."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np

from artifacts.errors import InputError
from perception.batches import Scenes, SceneSource
from perception.data.coco import CocoDataset
from perception.data.mask_folder import CAMVID, CITYSCAPES, MaskFolderDataset, MaskFormat
from perception.held_out import HELD_OUT_EVERY, held_out_numbers
from perception.scene.dataset import SceneDataset
from perception.scene.sample import Scene

HELD_OUT_SEED = 90_001
"""Seed of the rendered scenes that figures are measured on; no training may use it."""
MASK_FORMATS: dict[str, MaskFormat] = {"cityscapes": CITYSCAPES, "camvid": CAMVID}


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Scenes to train with and scenes to measure on.

    Attributes:
        training: makes the scenes to train with, at a height and width.
        held_out: makes the others.
        heads: the heads that have labels.
    """

    training: SceneSource
    held_out: SceneSource
    heads: tuple[str, ...] = ("detection", "segmentation", "depth")


def road_data(count: int, seed: int, held_out: int) -> TrainingData:
    """Returns rendered road scenes.

    Args:
        count: different scenes to train with.
        seed: of those.
        held_out: scenes to measure on, the same whatever the seed.

    Raises:
        InputError: the seed is that of the held-out scenes.
    """
    if seed == HELD_OUT_SEED:
        raise InputError(f"the seed {seed} is that of the held-out scenes", "another seed")
    return TrainingData(
        training=lambda height, width: SceneDataset(count, seed, height, width),
        held_out=lambda height, width: SceneDataset(held_out, HELD_OUT_SEED, height, width),
    )


def picture_data(
    images: Path, *, annotations: Path | None, masks: Path | None, mask_format: str
) -> TrainingData:
    """Returns own pictures with boxes (COCO) or with masks; each tenth is held out.

    Args:
        images: folder of pictures.
        annotations: COCO annotation file; trains detection.
        masks: folder of masks; trains segmentation.
        mask_format: a key of `MASK_FORMATS`.

    Raises:
        InputError: both or none of annotations and masks, an unknown format, fewer than ten
            pictures, or what the readers refuse.
    """
    if (annotations is None) == (masks is None):
        raise InputError(
            "own pictures with both or neither of annotations and masks",
            "either --annotations (boxes) or --masks",
        )
    if mask_format not in MASK_FORMATS:
        raise InputError(f"mask format '{mask_format}'", f"one of {', '.join(MASK_FORMATS)}")
    pictures: Scenes
    if annotations is not None:
        pictures, heads = CocoDataset(images, annotations), ("detection",)
    else:
        chosen = MASK_FORMATS[mask_format]
        pictures, heads = MaskFolderDataset(images, masks or "", chosen), ("segmentation",)
    if len(pictures) < HELD_OUT_EVERY:
        raise InputError(
            f"{len(pictures)} pictures in {images}", f"at least {HELD_OUT_EVERY} to hold one out"
        )
    others = held_out_numbers(len(pictures))
    kept = tuple(number for number in range(len(pictures)) if number not in others)
    return TrainingData(
        training=lambda height, width: ResizedScenes(pictures, kept, height, width),
        held_out=lambda height, width: ResizedScenes(pictures, tuple(others), height, width),
        heads=heads,
    )


@dataclass(frozen=True)
class ResizedScenes:
    """Some of the scenes, stretched to one size.

    Attributes:
        scenes: of any size.
        numbers: which of them.
        height: in pixels.
        width: in pixels.
    """

    scenes: Scenes
    numbers: tuple[int, ...]
    height: int
    width: int

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Scene:
        """Returns scene `index` of the chosen ones, resized."""
        return resize_scene(self.scenes[self.numbers[index]], self.height, self.width)

    def __iter__(self) -> Iterator[Scene]:
        return (self[index] for index in range(len(self)))


def resize_scene(scene: Scene, height: int, width: int) -> Scene:
    """Stretches a scene; labels keep their values, boxes follow."""
    rows, columns = scene.mask.shape
    factor = np.array([width / columns, height / rows] * 2, np.float32)
    size, nearest = (width, height), cv2.INTER_NEAREST
    shrinks = height < rows and width < columns
    smooth = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return replace(
        scene,
        image=np.asarray(cv2.resize(scene.image, size, interpolation=smooth)),
        boxes=scene.boxes * factor,
        mask=np.asarray(cv2.resize(scene.mask, size, interpolation=nearest)),
        depth=np.asarray(cv2.resize(scene.depth, size, interpolation=nearest)),
    )
