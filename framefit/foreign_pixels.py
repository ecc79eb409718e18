"""Warns where the pixels of an `.npz` are scaled otherwise than in training.

An array is taken as it is. Where the input spec is known, its pixels must lie between the spec's
black and white. Else the first layer tells: trained with pixels of 0 to 1, it answers those of 0 to
255 with outputs of some hundred.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from artifacts.npz_samples import NpzSamples
from artifacts.pixel_levels import LEAST_LEVEL, LEVELS
from artifacts.samples import pick_evenly
from artifacts.synthetic_pictures import PICTURE_RANK
from framefit.training_samples import PictureSamples, TrainingSamples

FEW = 4
"""Samples that are looked at."""
OUTSIDE = 0.1
"""How far beyond black or white values may be, as a share of the distance between them."""
NARROWEST = 0.05
"""The share of that distance which pictures cover at least."""
LOUDEST = LEVELS**0.5
"""A standard deviation above this is nearer to the usual 1 where pixels are divided by 255."""
LAYERS = ("Conv", "Gemm", "MatMul")

Array = NDArray[Any]
_log = logging.getLogger(__name__)


Measure = Callable[[str, Mapping[str, Array]], dict[str, float]]
"""From an input's name and values of all inputs to how much its first layers' outputs vary."""


def warn_of_foreign_training_pixels(
    samples: TrainingSamples, data: str, spec: InputSpec | None, measure: Measure
) -> None:
    """Warns as `warn_of_foreign_pixels` does, where samples for training are arrays."""
    if isinstance(samples.training, PictureSamples):
        arrays = samples.training.samples
        if isinstance(arrays, NpzSamples):
            warn_of_foreign_pixels(arrays, data, spec, measure)


def warn_of_foreign_pixels(
    samples: NpzSamples, data: str, spec: InputSpec | None, measure: Measure
) -> None:
    """Warns of each input whose pixels are not those that the network was trained with.

    Args:
        samples: arrays for the network.
        data: the file's name, for the warning.
        spec: how pixels become the input; None where nothing says so.
        measure: how much the outputs of the network's first layers vary.
    """
    few = pick_evenly(samples, FEW)
    pictures = {
        name: [sample[name] for sample in few]
        for name, first in few[0].items()
        if first.ndim >= PICTURE_RANK and first.dtype.kind == "f"
    }
    for name, arrays in pictures.items():
        low = min(float(array.min()) for array in arrays)
        high = max(float(array.max()) for array in arrays)
        problem = (
            _leave_spec(arrays[0].shape, low, high, spec)
            if spec is not None
            else _overwhelm_layer(measure, name, few[0], low, high)
        )
        if problem:
            _log.warning(
                "'%s' of %s has values from %.3g to %.3g, %s", name, data, low, high, problem
            )


def _leave_spec(shape: Sequence[int], low: float, high: float, spec: InputSpec) -> str:
    """Returns what is wrong with values beside a spec's black and white; "" for nothing."""
    if len(spec.mean) not in (shape[-3], shape[-1]):
        return ""
    mean, std = np.array(spec.mean), np.array(spec.std)
    black = float(((0.0 - mean) / std).min())
    white = float(((LEVELS * spec.pixel_scale - mean) / std).max())
    room = OUTSIDE * (white - black)
    is_within = black - room <= low and high <= white + room
    if is_within and high - low >= NARROWEST * (white - black):
        return ""
    return (
        f"and pixels by the network's input spec from {black:.3g} to {white:.3g}: scale them in "
        "the file as in training, or give --pixel-scale, --mean and --std as they were there"
    )


def _overwhelm_layer(
    measure: Measure, name: str, sample: Mapping[str, Array], low: float, high: float
) -> str:
    """Returns what pixels of 0 to 255 do to the first layer that reads them; "" for nothing."""
    if not (low >= 0 and LEAST_LEVEL <= high <= LEVELS):
        return ""
    try:
        spreads = measure(name, sample)
    except InputError as error:
        _log.debug("the first layers that read '%s' cannot be measured: %s", name, error)
        return ""
    loudest = max(spreads.items(), key=itemgetter(1), default=None)
    if loudest is None or loudest[1] <= LOUDEST:
        return ""
    return (
        f"and the outputs of its first layer '{loudest[0]}' vary by {loudest[1]:.0f}, by 1 or so "
        "in most trained networks: where training scaled pixels to 0..1, scale them in the file"
    )


def measure_first_layers(
    model: onnx.ModelProto, name: str, sample: Mapping[str, Array]
) -> dict[str, float]:
    """Returns how much the outputs of each layer that reads single pixels of an input vary.

    It is the standard deviation of a channel, the median over the channels, BatchNorm included.

    Args:
        model: the network.
        name: of the input.
        sample: values of all inputs.
    """
    from compress.quantize.executor import Subgraph
    from compress.quantize.graph import Graph
    from compress.quantize.pixel_extremes import find_pixelwise
    from compress.quantize.simplify import simplify

    graph = Graph(model)
    simplify(graph)
    pixelwise = find_pixelwise(graph, [name])
    layers = [node for node in graph.nodes if node.op_type in LAYERS and node.input[0] in pixelwise]
    layers = [node for node in layers if node.input[1] in graph.weights]
    if not layers:
        return {}
    path = [node for node in graph.nodes if pixelwise.issuperset(node.output)]
    outputs = [node.output[0] for node in layers]
    feeds = {name: sample[name]}
    values = Subgraph(graph, [*path, *layers], graph.weights, feeds, outputs).run(feeds)
    return {
        node.name: measure_spread(values[node.output[0]], 1 if node.op_type == "Conv" else -1)
        for node in layers
    }


def measure_spread(values: Array, axis: int) -> float:
    """Returns the standard deviation of a channel, the median over the channels of an axis."""
    channels = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    return float(np.median(channels.std(axis=1, dtype=np.float64)))
