"""The stage `network`: a session of `engines`, timed with the host's copies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.input_spec import InputSpec
from artifacts.samples import TensorShape, open_samples
from engines.session import Session, TensorInfo
from latency_budget.report import NETWORK_STAGE
from latency_budget.stage import Stage

RANDOM_FEEDS = 8
DATA_FEEDS = 32

Feeds = Mapping[str, NDArray[Any]]


def network_stage(session: Session) -> Stage:
    """Returns the stage that runs `session` on a frame's feeds and passes its outputs on."""
    return Stage(NETWORK_STAGE, session.run)


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


def read_feeds(session: Session, path: Path, *, limit: int = DATA_FEEDS) -> list[Feeds]:
    """Reads the network's inputs from pictures or an `.npz`, before anything is timed.

    Pixels become tensors as in the default input spec: the values do not change the time of a dense
    network, and no quality is measured here.

    Raises:
        InputError: the samples cannot be read or do not fit the network.
    """
    shapes = {
        tensor.name: TensorShape(tensor.shape, tensor.dtype.name) for tensor in session.inputs
    }
    return list(open_samples(path, shapes, InputSpec(), limit=limit)[:])
