"""Times networks as they will be deployed, beside the original: `compress prune`'s measure."""

from typing import TYPE_CHECKING

from framefit.network_clock import NetworkClock

if TYPE_CHECKING:
    from torch import nn

    from framefit.exported_module import Exporter


class ExportedClock:
    """Exports networks and measures each beside the original, a few inferences each in turn.

    Args:
        original: the network beside which the others are measured.
        export: makes the ONNX models that are timed, of it and of the others.
    """

    def __init__(self, original: "nn.Module", export: "Exporter") -> None:
        self._export = export
        self._clock = NetworkClock(export.runtime)
        self._original = export(original)

    def __call__(self, module: "nn.Module") -> tuple[float, float]:
        """Returns both latencies in ms: the network's, the original's."""
        original_ms, candidate_ms = self._clock([self._original, self._export(module)])
        return candidate_ms, original_ms
