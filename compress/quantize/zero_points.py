"""Whether activations have zero points, where the target's kernels take both: by measured time.

With a zero point a tensor that is seldom negative (SiLU, HardSwish) uses the whole grid, up to a
bit more than without. What that costs depends on the machine: with OpenVINO's kernels for AMX all
of YOLOv8n takes 1.37 times as long, with those for VNNI the same (`benchmarks/zero_points.py`).
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

import onnx

from compress.quantize.graph import Array
from compress.quantize.prepared import prepare_network
from compress.quantize.qparams import IntegerGrid, QParams, qparams_for_range
from compress.quantize.rounding import Nearest
from compress.quantize.search.precision import Clock
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass

_log = logging.getLogger(__name__)

LEAST_GAIN = 0.05
"""Share of the latency that must be saved for the resolution to be given up."""


def drop_where_slower(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    clock: Clock,
) -> QuantizeSettings:
    """Returns the settings, `symmetric` where the network is faster without zero points.

    What is timed is quantized with one sample and without repairs, which are kept for the network
    that is to be written.

    Args:
        model: as for `quantize_model`.
        samples: its calibration samples.
        settings: for a target that takes both, with `symmetric` left open.
        clock: measures latencies on the target.
    """
    rough = replace(
        settings,
        prefer=None,
        contracts=(),
        equalization=False,
        input_correction=False,
        bias_correction=False,
        rounding=Nearest(),
    )
    network = prepare_network(model, samples[:1], rough)
    decisions = StreamingPass(network, rough).run(samples[:1])
    symmetric = {name: _without(qparams) for name, qparams in decisions.activations.items()}
    if symmetric == decisions.activations:
        return settings
    models = [
        network.write_uncorrected(replace(decisions, activations=activations))
        for activations in (decisions.activations, symmetric)
    ]
    with_ms, without_ms = clock(models)
    if without_ms >= (1 - LEAST_GAIN) * with_ms:
        return settings
    _log.info("activations do without zero points, which make this network slower here")
    return replace(settings, symmetric=True)


def _without(qparams: QParams) -> QParams:
    """Returns signed qparams for the same range; as they are where 0 is the lowest integer."""
    if qparams.zero_point == qparams.grid.lowest:
        return qparams
    grid = IntegerGrid(bits=qparams.grid.bits, is_signed=True)
    return qparams_for_range(qparams.low, qparams.high, grid, symmetric=True)
