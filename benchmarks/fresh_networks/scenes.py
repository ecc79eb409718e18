"""Rendered roads as tensors: pictures, and what each kind of head learns."""

from dataclasses import dataclass

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.real_networks import REAL
from perception.scene.dataset import SceneDataset
from perception.scene.sample import BOX_CLASSES, Scene

HEIGHT, WIDTH = 128, 192
STRIDE = 8
"""Pixels per cell of the maps in which objects are learned."""
FARTHEST_M = 100.0
CALIBRATION_SEED, HELD_OUT_SEED = 72, 73
CALIBRATION, HELD_OUT, ROAD_FOR_CALIBRATION = 20, 12, 6
_CELLS = (HEIGHT // STRIDE, WIDTH // STRIDE)


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What a batch of pictures shows.

    Attributes:
        mask: class of each pixel [N, H, W].
        log_depth: logarithm of metres [N, 1, H, W].
        heat: 1 at the centre of each object, falling off around it [N, 3, H/8, W/8].
        boxes: left, top, right, bottom in pixels, where a centre is [N, 4, H/8, W/8].
        centres: 1 where a centre is, else 0 [N, 1, H/8, W/8].
    """

    mask: Tensor
    log_depth: Tensor
    heat: Tensor
    boxes: Tensor
    centres: Tensor

    def take(self, chosen: Tensor) -> "Targets":
        """Returns those of some pictures."""
        return Targets(**{name: value[chosen] for name, value in vars(self).items()})


def render_training(count: int, seed: int) -> tuple[Tensor, Targets]:
    """Returns pictures [N, 3, H, W] from 0 to 1, RGB, and what they show."""
    scenes = list(SceneDataset(count, seed, HEIGHT, WIDTH))
    found = [_find_targets(scene) for scene in scenes]
    stacked = {name: torch.stack([one[name] for one in found]) for name in found[0]}
    return _as_input(np.stack([scene.image for scene in scenes])), Targets(**stacked)


def read_calibration(height: int = HEIGHT, width: int = WIDTH) -> Tensor:
    """Returns rendered roads and, where present, real ones to calibrate on [N, 3, H, W]."""
    road = slice(None, ROAD_FOR_CALIBRATION)
    return _read_pictures(CALIBRATION, CALIBRATION_SEED, road, height, width)


def read_held_out(height: int = HEIGHT, width: int = WIDTH) -> Tensor:
    """Returns pictures to judge on, none of which calibrates."""
    return _read_pictures(HELD_OUT, HELD_OUT_SEED, slice(ROAD_FOR_CALIBRATION, None), height, width)


def _read_pictures(count: int, seed: int, road: slice, height: int, width: int) -> Tensor:
    pictures = [scene.image for scene in SceneDataset(count, seed, height, width)]
    for path in sorted(REAL.glob("road/*.jpg"))[road]:
        picture = cv2.imread(str(path))
        if picture is not None:
            pictures.append(
                cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA).astype(np.uint8)
            )
    return _as_input(np.stack(pictures))


def _as_input(pictures: NDArray[np.uint8]) -> Tensor:
    rgb = np.ascontiguousarray(pictures[..., ::-1].transpose(0, 3, 1, 2))
    return torch.from_numpy(rgb).float() / 255


def _find_targets(scene: Scene) -> dict[str, Tensor]:
    depth = np.where(np.isfinite(scene.depth), np.clip(scene.depth, 1.0, FARTHEST_M), FARTHEST_M)
    heat = np.zeros((len(BOX_CLASSES), *_CELLS), np.float32)
    boxes = np.zeros((4, *_CELLS), np.float32)
    centres = np.zeros((1, *_CELLS), np.float32)
    rows, columns = np.mgrid[: _CELLS[0], : _CELLS[1]]
    for box, label in zip(scene.boxes, scene.labels, strict=True):
        left, top, right, bottom = (float(value) for value in box)
        column = min(int((left + right) / 2 / STRIDE), _CELLS[1] - 1)
        row = min(int((top + bottom) / 2 / STRIDE), _CELLS[0] - 1)
        radius = max(0.7, min(right - left, bottom - top) / 5 / STRIDE)
        near = np.exp(-((columns - column) ** 2 + (rows - row) ** 2) / (2 * radius**2))
        heat[label] = np.maximum(heat[label], near)
        boxes[:, row, column] = box
        centres[0, row, column] = 1
    return {
        "mask": torch.from_numpy(scene.mask.astype(np.int64)),
        "log_depth": torch.from_numpy(np.log(depth).astype(np.float32))[None],
        "heat": torch.from_numpy(heat),
        "boxes": torch.from_numpy(boxes),
        "centres": torch.from_numpy(centres),
    }
