"""A small classifier that can be trained here in minutes: which object, and how far away.

The samples are square crops around the objects of rendered roads, with some of the surroundings and
an offset at random, all stretched to one size. The nine classes are car, truck and pedestrian, each
near, in between and far: the size in the picture is gone, so the distance has to be told from
sharpness, haze and surroundings, which cannot always be done.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifacts.input_spec import InputSpec
from benchmarks.kept_weights import train_once
from compress.train.batches import stack_samples
from compress.train.lesson import Batch, Lesson
from compress.train.settings import TrainerSettings
from compress.train.trainer import Progress, train
from perception.scene.dataset import SceneDataset
from perception.scene.sample import BOX_CLASSES, Scene

SIZE = 48
SCENE_HW = (320, 608)
BANDS_M = (14.0, 26.0)
"""Distances that part near, in between and far."""
CLASSES = len(BOX_CLASSES) * (len(BANDS_M) + 1)
ARCHITECTURE = "resnet10t"
LABEL = "label"
SURROUNDINGS, LARGEST_OFFSET = 1.3, 0.15
"""Side of a crop, and its offset, relative to the longer side of the box."""
SMALLEST_BOX = 12


@dataclass(frozen=True)
class Crops:
    """Samples with their labels: "image" [3, 48, 48], "label" [].

    Attributes:
        training: to learn from.
        probe: to choose the best weights on while learning.
        held_out: for the accuracy that is reported.
    """

    training: list[dict[str, NDArray[Any]]]
    probe: list[dict[str, NDArray[Any]]]
    held_out: list[dict[str, NDArray[Any]]]


def render_crops(training: int = 900, probe: int = 60, held_out: int = 300) -> Crops:
    """Cuts the objects out of as many scenes, of three seeds."""
    parts = [
        _cut(SceneDataset(count, seed, *SCENE_HW), seed)
        for count, seed in ((training, 7001), (probe, 7002), (held_out, 7003))
    ]
    return Crops(*parts)


def _cut(scenes: SceneDataset, seed: int) -> list[dict[str, NDArray[Any]]]:
    rng = np.random.default_rng(seed)
    spec = InputSpec()
    samples = []
    for scene in scenes:
        for box, label in zip(scene.boxes, scene.labels, strict=True):
            distance = _distance_m(scene, box)
            if distance is None:
                continue
            crop = _crop(scene.image, box, rng.uniform(-LARGEST_OFFSET, LARGEST_OFFSET, 2))
            band = int(np.searchsorted(BANDS_M, distance))
            number = np.int64(int(label) * (len(BANDS_M) + 1) + band)
            image = spec.prepare(crop, SIZE, SIZE)
            samples.append({"image": image, LABEL: np.asarray(number)})
    return samples


def _distance_m(scene: Scene, box: NDArray[np.float32]) -> float | None:
    """Returns the median depth inside a box; None where the box is tiny or nothing is known."""
    x1, y1, x2, y2 = (round(float(value)) for value in box)
    if min(x2 - x1, y2 - y1) < SMALLEST_BOX:
        return None
    inside = scene.depth[y1:y2, x1:x2]
    known = inside[np.isfinite(inside)]
    return float(np.median(known)) if known.size else None


def _crop(
    image: NDArray[np.uint8], box: NDArray[np.float32], offset: NDArray[np.float64]
) -> NDArray[np.uint8]:
    x1, y1, x2, y2 = (float(value) for value in box)
    longer = max(x2 - x1, y2 - y1)
    centre = ((x1 + x2) / 2 + offset[0] * longer, (y1 + y2) / 2 + offset[1] * longer)
    scale = SIZE / (SURROUNDINGS * longer)
    shift = [SIZE / 2 - scale * value for value in centre]
    matrix = np.array([[scale, 0, shift[0]], [0, scale, shift[1]]])
    border = cv2.BORDER_REPLICATE
    return np.asarray(cv2.warpAffine(image, matrix, (SIZE, SIZE), borderMode=border), np.uint8)


def build_classifier() -> nn.Module:
    """Returns the classifier with random weights."""
    import timm

    torch.manual_seed(0)
    network: nn.Module = timm.create_model(ARCHITECTURE, num_classes=CLASSES, pretrained=False)
    return network.eval()


class LabelLesson(Lesson):
    """Cross-entropy with the labels."""

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the loss."""
        return {"labels": label_loss(self.student(batch["image"]), batch[LABEL])}


def label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the cross-entropy of logits [N, classes] with labels [N]."""
    return nn.functional.cross_entropy(logits, labels)


@torch.no_grad()
def measure_accuracy(network: nn.Module, samples: list[dict[str, NDArray[Any]]]) -> float:
    """Returns the share of samples that are classified rightly."""
    batch = stack_samples(samples)
    found = network.eval()(batch["image"]).argmax(1)
    return float((found == batch[LABEL]).float().mean())


def train_classifier(
    crops: Crops,
    path: Path,
    progress: Progress | None = None,
    network: nn.Module | None = None,
) -> nn.Module:
    """Returns a classifier, trained; its weights are kept at `path` and read from there.

    Args:
        crops: to learn from.
        path: of the weights.
        progress: see `train`.
        network: what learns; None takes `build_classifier`.
    """
    settings = TrainerSettings(
        steps=700, batch_size=32, learning_rate=3e-3, average_decay=0.97, probe_every=175
    )

    def teach(learner: nn.Module) -> None:
        trained = train(
            LabelLesson(learner),
            crops.training,
            settings,
            probe=lambda candidate: -measure_accuracy(candidate, crops.probe),
            progress=progress,
        )
        learner.cpu().load_state_dict(trained.weights)

    return train_once(network or build_classifier(), path, teach)
