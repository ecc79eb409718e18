"""Batches in an order that depends on nothing but the seed and the step."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from artifacts.errors import InputError
from artifacts.loader_reading import read_batches
from compress.train.lesson import Batch
from compress.train.settings import TrainerSettings

Sample = Mapping[str, NDArray[Any]]


class ShuffledSamples(Dataset):
    """Samples by their position in an endless run; each epoch has an order of its own.

    Args:
        samples: arrays by name, the same names in each.
        seed: of the orders and of the mirrored samples.
        flip_probability: share of the samples whose arrays are mirrored along their last axis.
    """

    def __init__(self, samples: Sequence[Sample], seed: int, flip_probability: float) -> None:
        if len(samples) == 0:
            raise InputError("there are no samples to train with", "at least 1")
        self.samples = samples
        self.seed = seed
        self.flip_probability = flip_probability
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, np.int64)

    def __getitem__(self, position: int) -> dict[str, NDArray[Any]]:
        """Returns the sample at a position, 0 or more."""
        epoch, place = divmod(position, len(self.samples))
        if epoch != self._epoch:
            self._epoch = epoch
            rng = np.random.default_rng([self.seed, epoch])
            self._order = rng.permutation(len(self.samples))
        sample = dict(self.samples[int(self._order[place])])
        if np.random.default_rng([self.seed, 1, position]).random() < self.flip_probability:
            sample = {
                name: np.ascontiguousarray(array[..., ::-1]) for name, array in sample.items()
            }
        return sample


def open_batches(
    samples: Sequence[Sample],
    settings: TrainerSettings,
    *,
    start: int,
    rank: int = 0,
    processes: int = 1,
    pins_memory: bool = False,
) -> Iterator[Batch]:
    """Yields the parts of batches of one process, `settings.accumulate` for each step.

    Args:
        samples: see `ShuffledSamples`.
        settings: batch size, seed, workers and the rest.
        start: steps that were done before.
        rank: of this process.
        processes: that share each batch.
        pins_memory: puts batches where a GPU copies them from while it computes.

    Raises:
        InputError: a batch does not split evenly into its parts.
    """
    parts = processes * settings.accumulate
    if settings.batch_size % parts:
        raise InputError(
            f"a batch of {settings.batch_size} for {processes} processes with "
            f"{settings.accumulate} parts each",
            f"a multiple of {parts}",
        )
    size = settings.batch_size // parts
    first = [
        step * settings.batch_size + (part * processes + rank) * size
        for step in range(start, settings.steps)
        for part in range(settings.accumulate)
    ]
    loader = DataLoader(
        ShuffledSamples(samples, settings.seed, settings.flip_probability),
        batch_sampler=[list(range(position, position + size)) for position in first],
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        prefetch_factor=4 if settings.workers else None,
        pin_memory=pins_memory,
        collate_fn=stack_samples,
        generator=torch.Generator().manual_seed(settings.seed),
    )
    yield from read_batches(loader)


def stack_samples(samples: Sequence[Sample]) -> Batch:
    """Stacks samples along a new first axis."""
    return {
        name: torch.from_numpy(np.stack([sample[name] for sample in samples]))
        for name in samples[0]
    }
