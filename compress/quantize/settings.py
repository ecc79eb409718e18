"""The settings of a quantization."""

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from artifacts.errors import InputError
from compress.quantize.observers import MeanSquaredError, Observer
from compress.quantize.placement import PLACEMENTS, OnnxRuntime, OpenVINO, Placement, TensorRT
from compress.quantize.placement.integer_sums import INTEGER_SUMS
from compress.quantize.qparams import WEIGHT_GRIDS, IntegerGrid, WeightGrids
from compress.quantize.rounding import Auto, Nearest, Rounding
from compress.quantize.search.contract import Contract

ACTIVATION_BITS = {"int8": 8, "int16": 16, "float": 8}

LEAST_FASTER = 0.98
"""What is quantized takes less than this share of the float latency, however much is allowed."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The time that layers in float may cost, the smaller of two; or a latency to stay within.

    Attributes:
        saved_share: share of the time that INT8 saves.
        slowdown: share of the fastest network's latency.
        within_ms: the longest latency; None where the shares say it. With it they say how slow a
            form of the network may be to be tried.
        spent: what the form of the network already takes of it: the share by which the fastest
            network of that form is slower than that of the fastest form.
    """

    saved_share: float = 0.0
    slowdown: float = 0.0
    within_ms: float | None = None
    spent: float = 0.0

    def limit_ms(self, fastest_ms: float, float_ms: float) -> float:
        """Returns the longest latency that may be chosen, in ms.

        Args:
            fastest_ms: of the fastest network of this form.
            float_ms: of the float network.
        """
        if self.within_ms is not None:
            return max(min(self.within_ms, LEAST_FASTER * float_ms), fastest_ms)
        least_ms = fastest_ms / (1 + self.spent)
        saved_ms = max(float_ms - least_ms, 0.0)
        allowed_ms = least_ms + min(self.saved_share * saved_ms, self.slowdown * least_ms)
        return max(allowed_ms, fastest_ms)


PREFERENCES = {
    "speed": Allowance(),
    "balanced": Allowance(saved_share=0.2, slowdown=0.06),
    "quality": Allowance(saved_share=0.5, slowdown=0.2),
}


@dataclass(frozen=True, kw_only=True)
class QuantizeSettings:
    """How to quantize.

    Attributes:
        target: the runtime whose placement is used, a key of `PLACEMENTS`.
        observer: chooses the range of each activation.
        weights: "int8", "int8-pairs" (for processors that add two products in 16 bits, see
            `artifacts.paired_products`), "int7" (the same, INT8 from -63 to 63), or "int4" (stored
            as ONNX INT4, which takes opset 21).
        int4_share: the share of the weights that "int4" holds for, at least; the rest is for the
            layers whose INT4 weights cost the most quality for their size, which stay in INT8. None
            is `search.int4_layers.INT4_SHARE`.
        int8_weights: names of the layers whose weights stay in INT8 with "int4"; None: a
            measurement of every layer decides (`search.int4_layers`).
        weight_group: input channels that share a weight's scale, 64 or 128 say, for int4; None for
            one scale per output channel.
        symmetric: whether activations do without zero points, at half the resolution where values
            are seldom negative. None: TensorRT does, onnxruntime does not, and on OpenVINO a
            measurement decides, or they have zero points.
        spares_padded: on OpenVINO, whether what padded Convs read does without zero points while
            the rest has them. None: a measurement decides, or it has them.
        swish_by_tanh: whether SiLU behind spatial layers is written with tanh, which keeps OpenVINO
            from computing it inside them. None: a measurement decides, or it is left as it is.
            Other targets leave it.
        integer_attention: whether OpenVINO multiplies queries with keys and probabilities with
            values in integers. None: a measurement decides, or it does not.
        integer_sums: "blocks" for residual sums and "pyramids" for those of pyramids too that round
            both addends, which lets OpenVINO compute them inside its layers; "gates" to round also
            what squeeze-and-excite reads; "none" for none. None: a measurement decides, or there
            are none. Other targets have none.
        trunk_sums: whether OpenVINO reads sums on a trunk without activations in integers. None:
            with prefer "speed" a measurement decides, or it does not.
        integer_borders: whether onnxruntime computes layers in integers that alone would not pay
            for their quantizers. None: a measurement decides, or it does not.
        activations: "int8", "int16" (opset 21), or "float" for weights that are stored as integers
            and computed with in float.
        rounding: rounds the weights; None for `Auto` with int4 and `Nearest` else.
        bias_correction: gives back, per output channel, what quantization takes from the mean.
        input_correction: lets weights that are rounded to nearest make up for the errors of their
            inputs, where that lowers the error on held-out samples; GPTQ and the others do anyway.
        equalization: rescales channels between layers where that lowers the error.
        centering: moves activations that are seldom negative, so that int8 with zero_point 0 uses
            all of its values for them; other integers do anyway.
        looks_into_poor: where an output is poor, looks for the layer that makes most of its noise
            (`search.dominant_layers`).
        keep_float: names of nodes that stay in float.
        prefer: "speed", "balanced" or "quality": which layers stay in float, by measured time and
            error; None quantizes all that can be, but for layers that `looks_into_poor` finds.
        within_ms: instead of `prefer`, a latency that the network has to keep on the target: the
            layers that cost the most quality stay in float for as long as it is kept.
        contracts: what heads may lose; the search keeps layers in float until they are kept.
        memory_cap_bytes: activations beyond this sum are kept on disk.
    """

    target: str = "tensorrt"
    observer: Observer = field(default_factory=MeanSquaredError)
    weights: str = "int8"
    int4_share: float | None = None
    int8_weights: tuple[str, ...] | None = None
    weight_group: int | None = None
    symmetric: bool | None = None
    spares_padded: bool | None = None
    swish_by_tanh: bool | None = None
    integer_attention: bool | None = None
    integer_sums: str | None = None
    trunk_sums: bool | None = None
    integer_borders: bool | None = None
    activations: str = "int8"
    rounding: Rounding | None = None
    bias_correction: bool = True
    input_correction: bool = True
    equalization: bool = True
    centering: bool = True
    looks_into_poor: bool = True
    keep_float: tuple[str, ...] = ()
    prefer: str | None = None
    within_ms: float | None = None
    contracts: tuple[Contract, ...] = ()
    memory_cap_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if self.target not in PLACEMENTS:
            raise InputError(f"target is '{self.target}'", f"one of {', '.join(PLACEMENTS)}")
        self._check_weights()
        self._check_activations()
        if self.prefer not in (None, *PREFERENCES):
            raise InputError(f"prefer is '{self.prefer}'", f"one of {', '.join(PREFERENCES)}")
        if self.within_ms is not None:
            self._check_limit(self.within_ms)
        if self.integer_sums not in (None, *INTEGER_SUMS):
            raise InputError(
                f"integer_sums is '{self.integer_sums}'", f"one of {', '.join(INTEGER_SUMS)}"
            )
        if self.contracts and self.allowance is None:
            raise InputError(
                "contracts were given alone",
                "prefer (speed, balanced or quality) or within_ms too",
                "on the command line: --prefer or --within-ms beside --contract",
            )
        if self.memory_cap_bytes < 0:
            raise InputError(f"memory_cap_bytes is {self.memory_cap_bytes}", "0 or more")

    def _check_limit(self, within_ms: float) -> None:
        if not 0 < within_ms < math.inf:
            raise InputError(f"within_ms is {within_ms}", "a latency above 0 ms")
        if self.prefer is not None:
            raise InputError(f"within_ms was given with prefer '{self.prefer}'", "one of the two")

    def _check_weights(self) -> None:
        if self.weights not in WEIGHT_GRIDS:
            raise InputError(f"weights are '{self.weights}'", f"one of {', '.join(WEIGHT_GRIDS)}")
        for name in ("int4_share", "int8_weights", "weight_group"):
            if getattr(self, name) is not None and self.weights != "int4":
                raise InputError(f"{name} was given with weights '{self.weights}'", "int4")
        if self.int4_share is not None and not 0 <= self.int4_share <= 1:
            raise InputError(f"int4_share is {self.int4_share}", "from 0 to 1")
        if self.weight_group is not None and self.weight_group < 2:
            raise InputError(f"weight_group is {self.weight_group}", "2 or more, 64 or 128 say")

    def _check_activations(self) -> None:
        if self.activations not in ACTIVATION_BITS:
            raise InputError(
                f"activations are '{self.activations}'", f"one of {', '.join(ACTIVATION_BITS)}"
            )
        only = PLACEMENTS[self.target]().symmetric
        if not self.takes_zero_points_or_none and self.symmetric not in (None, only):
            kind = "symmetric" if only else "asymmetric"
            raise InputError(
                f"symmetric is {self.symmetric} with target '{self.target}'",
                f"{kind} activations, all that it takes",
            )

    @property
    def takes_zero_points_or_none(self) -> bool:
        """Whether the target takes activations with zero points as well as without."""
        return self.target == "openvino"

    @property
    def placement(self) -> Placement:
        """Where the target wants Q/DQ pairs, and of which integers."""
        if self.target == "openvino":
            return OpenVINO(
                symmetric=bool(self.symmetric),
                spares_padded=bool(self.spares_padded),
                swish_by_tanh=bool(self.swish_by_tanh),
                integer_attention=bool(self.integer_attention),
                integer_sums=self.integer_sums or "none",
                trunk_loses_on="" if self.trunk_sums else "OpenVINO",
                keeps_last_in_float=self._keeps_last_in_float,
                multiplies_integers=self._is_for_time,
            )
        placement = PLACEMENTS[self.target]()
        if isinstance(placement, OnnxRuntime):
            return replace(
                placement,
                integer_borders=bool(self.integer_borders),
                multiplies_integers=self._is_for_time,
            )
        if isinstance(placement, TensorRT):
            placement = replace(
                placement,
                keeps_last_in_float=self._keeps_last_in_float,
                is_for_16_bits=self.is_for_16_bits,
                multiplies_integers=self._is_for_time,
            )
            return placement if self._is_for_time else replace(placement, vectors="integers")
        return placement

    @property
    def _keeps_last_in_float(self) -> bool:
        return self.prefer != "speed" and self._is_for_time

    @property
    def _is_for_time(self) -> bool:
        """Whether integers shall save time, and not only size."""
        return self.weights != "int4" and self.activations == "int8"

    @property
    def centers_ranges(self) -> bool:
        """Whether ranges are moved: where activations are int8 with zero_point 0."""
        is_wanted = self.centering and self.bias_correction
        return is_wanted and self.placement.symmetric and self.activations == "int8"

    @property
    def is_for_16_bits(self) -> bool:
        """Whether weights are for processors without VNNI, which add two products in 16 bits."""
        return self.weights in ("int8-pairs", "int7")

    @property
    def activation_bits(self) -> int:
        """The width of quantized activations; 8 where they stay in float."""
        return ACTIVATION_BITS[self.activations]

    @property
    def weighs_quality(self) -> bool:
        """Whether quality on pictures unlike the calibration samples counts, and not speed alone.

        Ranges are then chosen on altered calibration pictures too (`search.stress`), as they are
        where there are few.
        """
        return self.allowance not in (None, Allowance())

    @property
    def allowance(self) -> Allowance | None:
        """The time that layers in float may cost; None where it is not asked for."""
        if self.within_ms is not None:
            return replace(PREFERENCES["quality"], within_ms=self.within_ms)
        return None if self.prefer is None else PREFERENCES[self.prefer]

    @property
    def is_pressed(self) -> bool:
        """Whether every few percent of the latency count."""
        return self.prefer == "speed" or self.within_ms is not None

    @property
    def opset(self) -> int:
        """The lowest opset that can say it: 21 for INT4 and for int16."""
        return 21 if self.weights == "int4" or self.activations == "int16" else 13

    @property
    def weight_grids(self) -> WeightGrids:
        """The integers that weights may take; what INT4 leaves in INT8 overflows nowhere."""
        return WeightGrids(
            WEIGHT_GRIDS[self.weights],
            frozenset(self.int8_weights or ()),
            WEIGHT_GRIDS["int8" if self.target == "tensorrt" else "int8-pairs"],
        )

    @property
    def weight_rounding(self) -> Rounding:
        """The rounding method, the default for the weights' type where none was given."""
        return self.rounding_for(WEIGHT_GRIDS[self.weights])

    def rounding_for(self, grid: IntegerGrid) -> Rounding:
        """Returns the rounding method of a layer with such integers."""
        return self.rounding or (Auto() if grid.bits == 4 else Nearest())

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as plain values, for the artifact's metadata."""
        rounding = self.weight_rounding
        values = asdict(replace(self, rounding=rounding))
        values["observer"] = {"name": type(self.observer).__name__, **values["observer"]}
        values["rounding"] = {"name": type(rounding).__name__, **values["rounding"]}
        return values
