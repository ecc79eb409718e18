"""What `compress quantize` made of a network, and its figures for `--json`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.digest import sha256_file
from framefit.target_check import TargetCheck

if TYPE_CHECKING:
    from compress.quantize.result import QuantizeResult
    from compress.quantize.search.precision import PrecisionChoice


@dataclass(frozen=True, kw_only=True)
class QuantizeOutcome:
    """What `quantize_file` made.

    Attributes:
        out: the file.
        source: the float model's file.
        result: what was done, layer by layer.
        target: the runtime that it was made for.
        samples: calibration samples used.
        float_bytes: size of the float model as ONNX.
        int8_bytes: size of the file.
        check: what the target computes with it; None where that does not run here.
        own_states: figures of each output (or part) of a network with states on whole sequences,
            see `compress.own_states.compare_own_states`.
        has_free_batch: whether the file computes with any batch, as the float one does; None where
            that has a batch of its own.
        is_batch_given: the float file's batch is free, and was set by the shapes that were given.
    """

    out: Path
    source: Path
    result: "QuantizeResult"
    target: str
    samples: int
    float_bytes: int
    int8_bytes: int
    check: TargetCheck | None
    own_states: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    has_free_batch: bool | None = None
    is_batch_given: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Returns the outcome for `--json`."""
        layers = self.result.layers
        return {
            "model": str(self.source),
            "out": str(self.out),
            "target": self.target,
            "weights": self.result.settings.weights,
            "sha256": sha256_file(self.out),
            "samples": self.samples,
            "float_bytes": self.float_bytes,
            "int8_bytes": self.int8_bytes,
            "outputs": self._describe(self.result.outputs_db),
            "parts": self._describe(self.result.parts_db),
            "has_free_batch": self.has_free_batch,
            "on_target": asdict(self.check) if self.check is not None else None,
            "layers": [
                {
                    "node": item.node,
                    "op_type": item.op_type,
                    "sqnr_db": item.sqnr_db,
                    "rounding": item.rounding,
                    "weight_bits": item.weight_bits,
                }
                for item in layers
            ],
            "precision": precision_values(self.result.precision),
            "declined": [
                {"node": item.node, "reason": item.reason} for item in self.result.declined
            ],
        }

    def _describe(self, measured_db: Mapping[str, float]) -> dict[str, dict[str, float]]:
        return {
            name: {"sqnr_db": db, **self.own_states.get(name, {})}
            for name, db in measured_db.items()
        }


def precision_values(choice: "PrecisionChoice | None") -> dict[str, Any] | None:
    """Returns the search for layers in float as plain values."""
    if choice is None:
        return None
    return {
        "float_ms": choice.float_ms,
        "int8_ms": choice.int8_ms,
        "chosen_ms": choice.chosen.latency_ms,
        "float_nodes": dict(choice.float_nodes),
        "contracts": [
            {
                "head": item.contract.head,
                "kind": item.contract.kind,
                "limit": item.contract.limit,
                "value": item.value,
                "kept": item.is_kept,
            }
            for item in choice.findings
        ],
        "tried": [
            {
                "float_nodes": len(item.float_nodes),
                "latency_ms": item.latency_ms,
                "head_db": dict(item.head_db),
            }
            for item in choice.tried
        ],
        "frontier": [
            {
                "latency_ms": item.latency_ms,
                "head_db": dict(item.head_db),
                "float_nodes": sorted(item.float_nodes),
            }
            for item in choice.frontier
        ],
    }
