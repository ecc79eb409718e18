"""Cross-layer equalization: gives the channels of an activation similar ranges.

A per-tensor scale has to cover the loudest channel, and the quiet ones lose their resolution.
Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction" (ICCV 2019),
move a factor per channel from one layer's weights into the next one's; Xiao et al., "SmoothQuant"
(ICML 2023), weigh activations against weights with an exponent. Here factors are r_c^alpha with
r_c the channel's range relative to the largest, and alpha is the one with the least error that the
reading layers would make, measured on calibration activations; alpha = 0 changes nothing. Channels
that are quiet on the calibration pictures may be loud on others, and a channel that is amplified
coarsens the scale of a reader's weights, so alpha ends at a half and r_c at an eighth. A depthwise
layer has a weight scale for every channel, which takes the factor up without loss: there alpha goes
to 1 (docs/experiments.md shows what both did). Fewer than ENOUGH_SAMPLES samples move less.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.quantize.channel_survey import ChannelSurvey, SeenChannels
from compress.quantize.graph import Array, Graph, attribute
from compress.quantize.layer_weights import choose_row_scales, pick_outputs
from compress.quantize.placement import Placement
from compress.quantize.qparams import INT8_WEIGHTS, WeightGrids
from compress.quantize.repairs.scale_group import (
    filters,
    find_scale_groups,
    rescale,
    scale_input_channels,
)
from compress.quantize.repairs.trial_rounding import round_activation, round_weight
from compress.quantize.side_by_side import map_ahead

LEAST_GAIN = 0.97
MEASURED_WEIGHTS = 1 << 18
"""Of a layer, by which its error is estimated."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How far channels are equalized.

    Attributes:
        exponents: those that are tried; 0 is none of it, 1 gives all channels the same range.
        smallest_factor: the smallest range, relative to the largest, that counts.
    """

    exponents: tuple[float, ...]
    smallest_factor: float


CAUTIOUS = Reach(exponents=(0.0, 0.25, 0.5), smallest_factor=1 / 4)
"""For few samples, which have not shown how loud a channel gets."""
MODERATE = Reach(exponents=(0.0, 0.25, 0.5), smallest_factor=1 / 8)
DEPTHWISE = Reach(exponents=(0.0, 0.25, 0.5, 0.75, 1.0), smallest_factor=1 / 16)
"""Where all readers are depthwise."""
ENOUGH_SAMPLES = 16
"""From so many on, the loudest value of a channel counts as known."""


def equalize(
    graph: Graph,
    survey: ChannelSurvey,
    placement: Placement,
    quantized: Collection[str],
    weight_grids: WeightGrids = INT8_WEIGHTS,
) -> list[str]:
    """Rescales channels in place where that lowers the error of the layers that read them.

    See `ScaleRepair` for arguments and result.
    """
    groups = find_scale_groups(graph)
    read = {
        graph.node(name).input[0] for group in groups for name in group.readers if name in quantized
    }
    if not read:
        return []
    seen = survey.look(graph, dict.fromkeys(sorted(read), 1))
    done = []
    for group in groups:
        readers = [name for name in group.readers if name in quantized]
        reach = choose_reach(
            len(survey.samples), all(is_depthwise(graph, name) for name in readers)
        )
        factors = choose_factors(graph, readers, seen, placement, weight_grids, reach)
        if factors is not None:
            rescale(graph, group, factors)
            survey.divide(group.tensors, factors)
            done.append(
                f"equalized {len(factors)} channels into {', '.join(readers)}, "
                f"factors {factors.min():.3f} to 1"
            )
    return done


def choose_factors(
    graph: Graph,
    readers: Sequence[str],
    seen: Mapping[str, SeenChannels],
    placement: Placement,
    weight_grids: WeightGrids,
    reach: Reach,
    enough: float = LEAST_GAIN,
) -> NDArray[np.float64] | None:
    """Returns the factors [C] with the least error of the layers `readers`.

    None if that is not at most `enough` times the error without factors.
    """
    tensors = sorted({graph.node(name).input[0] for name in readers})
    if not tensors:
        return None
    peaks = np.max([seen[name].peaks for name in tensors], axis=0).astype(np.float64)
    if not np.isfinite(peaks).all() or peaks.max() == 0:
        return None
    relative = np.clip(peaks / peaks.max(), reach.smallest_factor, 1.0)

    def measure(exponent: float) -> float:
        return measure_error(graph, readers, seen, placement, weight_grids, relative**exponent)

    errors = list(map_ahead(measure, reach.exponents))
    best = int(np.argmin(errors))
    if best == 0 or errors[best] > errors[0] * enough:
        return None
    return np.asarray(relative ** reach.exponents[best], np.float64)


def choose_reach(samples: int, all_depthwise: bool) -> Reach:
    """Returns how far channels are equalized for readers, given that many calibration samples."""
    if samples < ENOUGH_SAMPLES:
        return CAUTIOUS
    return DEPTHWISE if all_depthwise else MODERATE


def is_depthwise(graph: Graph, name: str) -> bool:
    """Whether a layer is a Conv each of whose outputs reads one channel."""
    layer = graph.node(name)
    return bool(layer.op_type == "Conv" and graph.weights[layer.input[1]].shape[1] == 1)


def measure_error(
    graph: Graph,
    readers: Sequence[str],
    seen: Mapping[str, SeenChannels],
    placement: Placement,
    weight_grids: WeightGrids,
    factors: NDArray[np.float64],
) -> float:
    """Returns the readers' squared output error, each relative to its signal, added up.

    Errors of activations and weights are taken as independent between channels.
    """
    total = 0.0
    noises: dict[str, Array] = {}
    for name in readers:
        layer = graph.node(name)
        tensor = seen[layer.input[0]]
        if layer.input[0] not in noises:
            noises[layer.input[0]] = _activation_noise(tensor.values, factors, placement)
        weight = _pick_weights(layer, graph.weights[layer.input[1]])
        rounded = _round_weight(layer, scale_input_channels(layer, weight, factors), weight_grids)
        weight_error = scale_input_channels(layer, rounded, 1 / factors) - weight
        energy = _input_energy(layer, weight)
        noise = np.dot(energy, noises[layer.input[0]])
        noise += np.dot(_input_energy(layer, weight_error), tensor.power)
        total += float(noise / max(np.dot(energy, tensor.power), 1e-30))
    return total


def _activation_noise(
    values: NDArray[np.float32], factors: NDArray[np.float64], placement: Placement
) -> NDArray[np.float64]:
    """Returns the mean squared rounding error per channel, [C], in the unscaled units."""
    column = factors.astype(np.float32)[:, None]
    scaled = values / column
    error = (round_activation(scaled, placement) - scaled) * column
    return np.asarray(np.square(error, dtype=np.float64).mean(axis=1))


def _pick_weights(layer: onnx.NodeProto, weight: Array) -> NDArray[np.float64]:
    """Returns a weight, see `filters`, with as many output channels as MEASURED_WEIGHTS take."""
    step = -(-weight.size // MEASURED_WEIGHTS)
    whole, groups = filters(layer, weight), attribute(layer, "group", 1)
    picked = pick_outputs(whole, _output_axis(layer), groups, step)
    return np.asarray(picked, np.float64)


def _round_weight(layer: onnx.NodeProto, weight: Array, grids: WeightGrids) -> Array:
    return round_weight(weight, _output_axis(layer), grids.of(layer.name), choose_row_scales)


def _output_axis(layer: onnx.NodeProto) -> int:
    return 1 if layer.op_type == "ConvTranspose" else 0


def _input_energy(layer: onnx.NodeProto, weight: Array) -> NDArray[np.float64]:
    """Returns the sum of squared weights that each input channel meets, [C]."""
    squares = np.square(weight)
    if layer.op_type == "ConvTranspose":
        return np.asarray(squares.reshape(weight.shape[0], -1).sum(axis=1))
    groups = attribute(layer, "group", 1)
    grouped = squares.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    return np.asarray(grouped.sum(axis=(1, 3)).reshape(-1))
