"""Runs the zoo, each network in a process of its own."""

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.own_processes import Row, run_each
from benchmarks.zoo.child import measure_network
from benchmarks.zoo.networks import ZooNetwork

TIMEOUT_S = 120.0
PRELOADED = ("torch", "timm", "onnxruntime", "export.to_onnx", "compress.quantize.api")


def run_zoo(
    networks: Sequence[ZooNetwork],
    targets: Sequence[str],
    *,
    workers: int = 1,
    timeout_s: float = TIMEOUT_S,
    tell: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Returns one row per network, see `run_each`.

    Args:
        networks: what to run.
        targets: placements to quantize for; the first is linted and built.
        workers: processes at a time.
        timeout_s: the longest that one network may take.
        tell: is given each row as it is finished.
    """
    return run_each(
        partial(measure_network, targets=tuple(targets)),
        networks,
        workers=workers,
        timeout_s=timeout_s,
        preloaded=PRELOADED,
        tell=tell,
    )
