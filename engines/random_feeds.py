"""Random inputs, for networks whose time does not depend on what they are given."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.session import Feeds, Session, TensorInfo

RANDOM_FEEDS = 8


def random_feeds(session: Session, *, count: int = RANDOM_FEEDS, seed: int = 0) -> list[Feeds]:
    """Returns `count` sets of random inputs: pixels for uint8, 0 to 1 for floats, else zeros.

    Dense networks take the same time for any input. Where the time depends on the input (a
    non-maximum suppression inside the graph), give real samples instead.
    """
    rng = np.random.default_rng(seed)
    return [{tensor.name: _fill(tensor, rng) for tensor in session.inputs} for _ in range(count)]


def _fill(tensor: TensorInfo, rng: np.random.Generator) -> NDArray[Any]:
    if tensor.dtype == np.uint8:
        return rng.integers(0, 256, tensor.shape, np.uint8)
    if np.issubdtype(tensor.dtype, np.floating):
        return rng.random(tensor.shape).astype(tensor.dtype)
    return np.zeros(tensor.shape, tensor.dtype)
