"""Times networks as they will be deployed, beside the original: `compress prune`'s measure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from framefit.exported_module import export_module
from framefit.network_clock import NetworkClock

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch import nn


class ExportedClock:
    """Exports networks and measures each beside the first one.

    The first latency stays the yardstick: later ones are their ratio to it in the same minute,
    times what it was at the start, so that a machine that slows down does not move the goal.

    Args:
        shapes: of the inputs, by name.
        runtime: a name of `engines.runtimes.BACKENDS`.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], runtime: str) -> None:
        self._shapes = dict(shapes)
        self._clock = NetworkClock(runtime)
        self._first: ModelProto | None = None
        self._first_ms = 0.0

    def __call__(self, module: "nn.Module") -> float:
        """Returns the lower quartile of a network's latency in ms, see `NetworkClock`.

        The first one measured is the yardstick.
        """
        model = export_module(module, self._shapes)
        if self._first is None:
            self._first = model
            (self._first_ms,) = self._clock([model])
            return self._first_ms
        first_ms, candidate_ms = self._clock([self._first, model])
        return candidate_ms / first_ms * self._first_ms
