"""What a runtime's profiler says, in one form for all runtimes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engines.session import Feeds, Session, TensorInfo

Now = Callable[[], int]


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """One layer that the runtime executes.

    Attributes:
        name: the runtime's name of it.
        kind: its operator, or the kernel that runs it.
        median_s: nearest-rank median over the runs, in seconds.
        nodes: the ONNX nodes (or their results) that the runtime says it consists of; may be empty.
        inputs: the executed layers that it reads; empty where the runtime does not tell.
        outputs: the graph outputs that it writes.
    """

    name: str
    kind: str
    median_s: float
    nodes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LayerProfile:
    """A network's time per layer.

    Attributes:
        runtime: what ran it.
        layers: in the order of execution; those that cost nothing (views) have a time of 0.
        total_s: nearest-rank median of the whole profiled run as its caller sees it.
        runs: how many runs were profiled.
    """

    runtime: str
    layers: tuple[LayerTime, ...]
    total_s: float
    runs: int

    @property
    def layers_s(self) -> float:
        """Sum of the layers' medians."""
        return sum(layer.median_s for layer in self.layers)

    @property
    def outside_s(self) -> float:
        """What the run takes besides its layers: copies, dispatch, the profiler itself."""
        return max(0.0, self.total_s - self.layers_s)


def median_of(values: Sequence[float]) -> float:
    """Returns the nearest-rank median: a time that really happened."""
    return sorted(values)[(len(values) - 1) // 2]


def time_runs(
    session: Session, feeds: Feeds, runs: int, now_ns: Now, after: Callable[[], None]
) -> float:
    """Runs a session and returns the median of the whole runs in seconds.

    Args:
        session: the network.
        feeds: its inputs.
        runs: how many.
        now_ns: the clock.
        after: called after each run, outside the timed part.
    """
    totals = []
    for _ in range(runs):
        begun = now_ns()
        session.run_borrowed(feeds)
        totals.append((now_ns() - begun) / 1e9)
        after()
    return median_of(totals)


def zero_feeds(inputs: tuple[TensorInfo, ...]) -> Feeds:
    """Returns zeros for every input."""
    return {tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in inputs}
