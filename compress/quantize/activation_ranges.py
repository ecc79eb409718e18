"""Which integers activations become: one choice for each tensor, or for all that share a scale."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from compress.progress import Progress
from compress.quantize.decision_log import DecisionLog
from compress.quantize.graph import Array
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.qparams import IntegerGrid, QParams, qparams_for_range
from compress.quantize.settings import QuantizeSettings
from compress.quantize.survey import observe_surveyed, survey_tensors
from compress.quantize.tied_scales import TiedScales

UNSEEN_REACH = 4.0
"""How far integers of 16 bits reach beyond the range that was chosen: two of their bits cost
nothing that is seen beside weights of 8, and what the calibration data never reached is not
clipped."""
_WIDE_BITS = 16


class ActivationRanges:
    """Chooses the qparams of a network's activations, each once.

    Args:
        prepared: the network; its survey learns what it lacks.
        settings: the observer, and the bits of activations.
        log: what an interrupted run had decided, and where decisions are kept.

    Attributes:
        decided: qparams by tensor.
    """

    def __init__(
        self, prepared: PreparedNetwork, settings: QuantizeSettings, log: DecisionLog | None = None
    ) -> None:
        self.decided: dict[str, QParams] = {}
        self._prepared = prepared
        self._settings = settings
        self._log = log or DecisionLog()
        self._tied = TiedScales(prepared.graph, prepared.quantized)
        self._centered = {
            name: item.scale for item in prepared.centered for name in item.region.tensors
        }
        self._signed = prepared.placement.find_signed(prepared.graph, prepared.quantized)
        self._spared = prepared.placement.find_spared(prepared.graph, prepared.quantized)

    def survey(self, samples: Sequence[dict[str, Array]], progress: Progress | None = None) -> None:
        """Looks at the tensors that need a range and were not looked at yet."""
        graph, known = self._prepared.graph, self._prepared.survey
        nodes = {node.name: node for node in graph.nodes}
        read = {
            source
            for item in self._prepared.quantized
            for position in item.activations
            for source in self._tied.sources(nodes[item.node].input[position])
        }
        known.update(survey_tensors(graph, sorted(read - known.keys()), samples, progress))

    def decide(
        self, tensor: str, output_error: Callable[[QParams], float] | None = None
    ) -> QParams:
        """Returns the qparams of a tensor.

        Args:
            tensor: it, or all that it shares its scale with, were surveyed.
            output_error: measures what qparams do to the output of the tensor's reader.
        """
        if tensor not in self.decided:
            found = self._tied.find_decided(tensor, self.decided) or self._log.find_qparams(tensor)
            if found is None:
                found = self._choose(tensor, output_error)
                self._log.keep_qparams(tensor, found)
            self.decided[tensor] = found
        return self.decided[tensor]

    def share(self, tensors: Sequence[str]) -> None:
        """Gives `tensors` the qparams of those that they share a scale with, if these have some."""
        self._tied.share(self.decided, tensors)

    def _choose(self, tensor: str, output_error: Callable[[QParams], float] | None) -> QParams:
        survey, placement = self._prepared.survey, self._prepared.placement
        if tensor in self._centered:
            return QParams(scale=self._centered[tensor], zero_point=0, grid=IntegerGrid())
        if self._spared & self._tied.group(tensor):
            placement = placement.without_zero_points()
        seen = observe_surveyed([survey[name] for name in self._tied.sources(tensor)])
        grid = placement.activation_grid(seen.low)
        is_signed = grid.is_signed or bool(self._signed & self._tied.group(tensor))
        grid = replace(grid, bits=self._settings.activation_bits, is_signed=is_signed)
        symmetric = placement.symmetric
        reach = UNSEEN_REACH if grid.bits == _WIDE_BITS else 1.0

        def qparams(ends: tuple[float, float]) -> QParams:
            low, high = ends
            return qparams_for_range(reach * low, reach * high, grid, symmetric=symmetric)

        error = None if output_error is None else lambda ends: output_error(qparams(ends))
        chosen = self._settings.observer.choose_range(
            seen, grid, symmetric=symmetric, output_error=error
        )
        return qparams(chosen)
