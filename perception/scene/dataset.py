"""Random road scenes as a dataset, each a function of its seed and index alone."""

from collections.abc import Iterator

import numpy as np

from artifacts.errors import InputError
from perception.scene.layout import sample_layout
from perception.scene.render import render
from perception.scene.sample import Scene


class SceneDataset:
    """Road scenes rendered when asked for.

    Args:
        count: number of scenes.
        seed: scenes of different seeds share nothing.
        height: picture height in pixels, at least 64.
        width: picture width in pixels, at least 64.

    Raises:
        InputError: an argument is out of range.
    """

    def __init__(self, count: int, seed: int, height: int = 288, width: int = 512) -> None:
        if count < 0 or seed < 0:
            raise InputError(f"count {count} and seed {seed}", "both at least 0")
        if height < 64 or width < 64:
            raise InputError(f"scene size {height}x{width}", "at least 64x64 pixels")
        self.count = count
        self.seed = seed
        self.height = height
        self.width = width

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Scene:
        """Renders scene `index`.

        Raises:
            IndexError: the index is outside 0 to count - 1.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"scene {index} of {self.count}")
        rng = np.random.default_rng([self.seed, index])
        return render(sample_layout(rng, self.height, self.width))

    def __iter__(self) -> Iterator[Scene]:
        return (self[i] for i in range(self.count))
