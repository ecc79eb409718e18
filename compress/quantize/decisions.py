"""What the streaming pass decides, layer by layer."""

from dataclasses import dataclass, field

from compress.quantize.graph import Array
from compress.quantize.layer_weights import QuantizedWeight
from compress.quantize.qparams import QParams


@dataclass(frozen=True, kw_only=True)
class LayerResult:
    """What quantizing one node did.

    Attributes:
        node: its name.
        op_type: its operator.
        sqnr_db: signal to quantization noise of its output, all errors before it included.
        rounding: how its weight was rounded; empty where it has none.
        weight_bits: 8, 7 or 4; None where it has no weight.
    """

    node: str
    op_type: str
    sqnr_db: float
    rounding: str = ""
    weight_bits: int | None = None


@dataclass
class Decisions:
    """What the pass decided.

    Attributes:
        activations: qparams per tensor.
        weights: integers per node name.
        alone: integers of layers whose `weights` make up for what is quantized before them, for
            when nothing else is; empty where a log is kept, since that network is to be written.
        overrides: constants whose values changed (corrected biases, weights of layers in float),
            by name.
        biases: names of the bias that a layer shall read, by node name.
        float_weights: names of the weight that a layer in float shall read, by node name.
        layers: one result per quantized node, in order.
        outputs_db: SQNR of each graph output on the calibration samples.
        parts_db: the same for the parts of outputs that join unlike tensors.
        constant_outputs: those that the samples do not change in the float network, and how.
        fitted_outputs: those that biases made exact on the only sample.
    """

    activations: dict[str, QParams] = field(default_factory=dict)
    weights: dict[str, QuantizedWeight] = field(default_factory=dict)
    alone: dict[str, QuantizedWeight] = field(default_factory=dict)
    overrides: dict[str, Array] = field(default_factory=dict)
    biases: dict[str, str] = field(default_factory=dict)
    float_weights: dict[str, str] = field(default_factory=dict)
    layers: list[LayerResult] = field(default_factory=list)
    outputs_db: dict[str, float] = field(default_factory=dict)
    parts_db: dict[str, float] = field(default_factory=dict)
    constant_outputs: dict[str, str] = field(default_factory=dict)
    fitted_outputs: list[str] = field(default_factory=list)
