"""Whether activations have zero points, where the target's kernels take both: by measured time.

With a zero point a tensor that is seldom negative (SiLU, HardSwish) uses the whole grid, up to a
bit more than without. What that costs depends on the machine: with OpenVINO's kernels for AMX all
of YOLOv8n takes 1.37 times as long, with those for VNNI the same (`benchmarks/zero_points.py`).
"""

from dataclasses import replace

from compress.quantize.decisions import Decisions
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.qparams import IntegerGrid, QParams, qparams_for_range
from compress.quantize.search.precision import Clock

LEAST_GAIN = 0.05
"""Share of the latency that must be saved for the resolution to be given up."""


def costs_time(network: PreparedNetwork, decisions: Decisions, clock: Clock) -> bool:
    """Returns whether a network is faster without zero points.

    Args:
        network: placed for a target that takes both.
        decisions: qparams and integers of every layer; only their timing matters here.
        clock: measures latencies on the target.
    """
    symmetric = {name: _without(qparams) for name, qparams in decisions.activations.items()}
    if symmetric == decisions.activations:
        return False
    models = [
        network.write_uncorrected(replace(decisions, activations=activations))
        for activations in (decisions.activations, symmetric)
    ]
    with_ms, without_ms = clock(models)
    return without_ms < (1 - LEAST_GAIN) * with_ms


def _without(qparams: QParams) -> QParams:
    """Returns signed qparams for the same range; as they are where 0 is the lowest integer."""
    if qparams.zero_point == qparams.grid.lowest:
        return qparams
    grid = IntegerGrid(bits=qparams.grid.bits, is_signed=True)
    return qparams_for_range(qparams.low, qparams.high, grid, symmetric=True)
