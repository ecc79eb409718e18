"""Measures networks as they will be deployed: exported, on a runtime, beside the original."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framefit.network_clock import NetworkClock

if TYPE_CHECKING:
    from torch import nn


class ExportedClock:
    """Exports networks and measures each beside the first one.

    The first latency stays the yardstick: later ones are their ratio to it in the same minute,
    times what it was at the start, so that a machine that slows down does not move the goal.

    Args:
        shapes: of the inputs, by name.
        folder: for the exported files.
        runtime: a name of `engines.runtimes.BACKENDS`.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], folder: Path, runtime: str) -> None:
        self._shapes = dict(shapes)
        self._folder = folder
        self._clock = NetworkClock(runtime)
        self._first: Any = None
        self._first_ms = 0.0

    def __call__(self, module: "nn.Module") -> float:
        """Returns the P50 of a network in ms; the first one measured is the yardstick."""
        import onnx

        from export.to_onnx import export_onnx

        path = self._folder / "candidate.onnx"
        export_onnx(module, path, input_shape=self._shapes)
        model = onnx.load(path)
        if self._first is None:
            self._first = model
            (self._first_ms,) = self._clock([model])
            return self._first_ms
        first_ms, candidate_ms = self._clock([self._first, model])
        return candidate_ms / first_ms * self._first_ms
