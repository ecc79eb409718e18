"""Times networks as they will be deployed, beside the original: `compress prune`'s measure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from framefit.exported_module import export_module
from framefit.network_clock import NetworkClock

if TYPE_CHECKING:
    from torch import nn


class ExportedClock:
    """Exports networks and measures each beside the original, one inference each in turn.

    Args:
        original: the network beside which the others are measured.
        shapes: of the inputs, by name.
        runtime: a name of `engines.runtimes.BACKENDS`.
    """

    def __init__(
        self, original: "nn.Module", shapes: Mapping[str, tuple[int, ...]], runtime: str
    ) -> None:
        self._shapes = dict(shapes)
        self._clock = NetworkClock(runtime)
        self._original = export_module(original, self._shapes)

    def __call__(self, module: "nn.Module") -> tuple[float, float]:
        """Returns the lower quartiles of both latencies in ms: the network's, the original's."""
        model = export_module(module, self._shapes)
        original_ms, candidate_ms = self._clock([self._original, model])
        return candidate_ms, original_ms
