"""Batches of pictures with dense training targets, made beside the training."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from artifacts.input_spec import InputSpec
from artifacts.loader_reading import read_batches
from perception.heads.head import TargetEncoder
from perception.scene.sample import Scene


class Scenes(Protocol):
    """Labelled scenes by number."""

    def __len__(self) -> int:
        """Returns the number of scenes."""
        ...

    def __getitem__(self, index: int) -> Scene:
        """Returns one scene; the same for the same index."""
        ...

    def __iter__(self) -> Iterator[Scene]:
        """Yields all scenes in order."""
        ...


SceneSource = Callable[[int, int], Scenes]
"""Makes the scenes at a height and width in pixels."""


@dataclass(frozen=True)
class Batch:
    """Inputs and targets of one step.

    Attributes:
        images: [N, 3, H, W] float32.
        targets: what the heads' encoders made, stacked.
    """

    images: Tensor
    targets: dict[str, Tensor]


def encode_scene(
    scene: Scene, encoders: Sequence[TargetEncoder], spec: InputSpec, scale: float
) -> dict[str, NDArray[np.generic]]:
    """Returns the input tensor ("image") and all heads' targets of one scene."""
    height, width = scene.mask.shape
    arrays: dict[str, NDArray[np.generic]] = {"image": spec.prepare(scene.image, height, width)}
    for encoder in encoders:
        arrays.update(encoder.encode(scene, scale))
    return arrays


def flip_scene(scene: Scene) -> Scene:
    """Mirrors a scene left to right."""
    boxes = scene.boxes.copy()
    boxes[:, [0, 2]] = scene.mask.shape[1] - scene.boxes[:, [2, 0]]
    return replace(
        scene,
        image=np.ascontiguousarray(scene.image[:, ::-1]),
        boxes=boxes,
        mask=np.ascontiguousarray(scene.mask[:, ::-1]),
        depth=np.ascontiguousarray(scene.depth[:, ::-1]),
    )


class SceneStream(IterableDataset):
    """An endless stream of encoded scenes that can start anywhere.

    Args:
        scenes: the labelled scenes.
        encoders: of the heads that are trained.
        spec: how pixels become inputs.
        scale: size of the scenes relative to the network's input size.
        seed: orders the scenes, anew in each epoch, and chooses those to mirror.
        start: scenes to skip, where a training run is resumed.
        step: takes each `step`-th scene, where several streams share the work.
        flip_probability: share of the scenes that is mirrored.
    """

    def __init__(
        self,
        scenes: Scenes,
        encoders: Sequence[TargetEncoder],
        spec: InputSpec,
        *,
        scale: float,
        seed: int,
        start: int = 0,
        step: int = 1,
        flip_probability: float = 0.0,
    ) -> None:
        self.scenes = scenes
        self.encoders = encoders
        self.spec = spec
        self.scale = scale
        self.seed = seed
        self.start = start
        self.step = step
        self.flip_probability = flip_probability

    def __iter__(self) -> Iterator[dict[str, NDArray[np.generic]]]:
        count = len(self.scenes)
        position = self.start
        epoch, order = -1, np.empty(0, np.int64)
        while True:
            if position // count != epoch:
                epoch = position // count
                order = np.random.default_rng([self.seed, epoch]).permutation(count)
            scene = self.scenes[int(order[position % count])]
            if np.random.default_rng([self.seed, 1, position]).random() < self.flip_probability:
                scene = flip_scene(scene)
            yield encode_scene(scene, self.encoders, self.spec, self.scale)
            position += self.step


def open_batches(stream: SceneStream, batch_size: int, workers: int) -> Iterator[Batch]:
    """Yields batches of `stream` for ever.

    Args:
        stream: the encoded scenes.
        batch_size: scenes in a batch.
        workers: 0 encodes in this process, 1 in a process beside it.
    """
    loader = DataLoader(
        stream,
        batch_size=batch_size,
        num_workers=min(workers, 1),
        collate_fn=_collate,
        prefetch_factor=6 if workers else None,
    )
    yield from read_batches(loader)


def _collate(samples: list[dict[str, NDArray[np.generic]]]) -> Batch:
    stacked = {
        name: torch.from_numpy(np.stack([sample[name] for sample in samples]))
        for name in samples[0]
    }
    images = stacked.pop("image").contiguous(memory_format=torch.channels_last)
    return Batch(images, stacked)
