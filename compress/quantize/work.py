"""A network that is being quantized: prepared once, then walked with this or that left in float."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from artifacts.samples import pick_evenly
from compress.progress import Progress
from compress.quantize.decision_log import DecisionLog
from compress.quantize.decisions import Decisions
from compress.quantize.graph import Array
from compress.quantize.memory_estimate import count_walked, estimate_memory
from compress.quantize.prepare import prepare_network
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.result import QuantizeResult
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass

_log = logging.getLogger(__name__)

SEARCH_SAMPLES = 8
"""Calibration samples that the search for layers in float uses, evenly spaced."""


@dataclass(frozen=True)
class Work:
    """What every step of one quantization needs."""

    prepared: PreparedNetwork
    samples: Sequence[dict[str, Array]]
    settings: QuantizeSettings
    progress: Progress | None
    log: DecisionLog

    @classmethod
    def begin(
        cls,
        model: onnx.ModelProto,
        samples: Sequence[dict[str, Array]],
        settings: QuantizeSettings,
        progress: Progress | None,
        log: DecisionLog,
    ) -> "Work":
        """Prepares a network; the log keeps what other settings decide apart."""
        if settings.symmetric is not None:
            log = log.branch("symmetric" if settings.symmetric else "asymmetric")
        elif settings.spares_padded is not None:
            log = log.branch("spared")
        if settings.integer_sums is not None:
            log = log.branch(f"sums-{settings.integer_sums}")
        if settings.integer_attention is not None:
            log = log.branch("attention" if settings.integer_attention else "float-attention")
        if settings.trunk_sums is not None:
            log = log.branch("trunk" if settings.trunk_sums else "float-trunk")
        if settings.integer_borders:
            log = log.branch("borders")
        prepared = prepare_network(model, samples, settings, progress)
        return cls(prepared, samples, settings, progress, log)

    def finish(self, network: PreparedNetwork) -> QuantizeResult:
        """Returns the result of quantizing what `network` leaves to quantize."""
        return self.write(network, self.decide(network))

    def decide(self, network: PreparedNetwork) -> Decisions:
        """Returns the decisions for what `network` leaves to quantize."""
        return self.stream(network, self.samples, self.log.with_float_nodes(network.kept))

    def write(self, network: PreparedNetwork, decisions: Decisions) -> QuantizeResult:
        """Returns the result of decisions for `network`."""
        return QuantizeResult(
            model=network.write_model(decisions),
            layers=tuple(decisions.layers),
            declined=network.declined,
            simplified=network.simplified,
            outputs_db=decisions.outputs_db,
            parts_db=decisions.parts_db,
            constant_outputs=decisions.constant_outputs,
            fitted_outputs=tuple(decisions.fitted_outputs),
            settings=self.settings,
        )

    def pick_few(self) -> list[dict[str, Array]]:
        """Returns the samples of the search."""
        return pick_evenly(self.samples, SEARCH_SAMPLES)

    def stream(
        self,
        network: PreparedNetwork,
        samples: Sequence[dict[str, Array]],
        log: DecisionLog | None = None,
    ) -> Decisions:
        """Returns the decisions of one pass over samples."""
        walked = count_walked(network, self.settings, len(samples))
        estimate = estimate_memory(network, walked, self.settings.memory_cap_bytes)
        estimate.require_disk()
        _log.info("%d samples, %d at once, need %s", len(samples), walked, estimate)
        return StreamingPass(network, self.settings, log).run(samples, self.progress)
