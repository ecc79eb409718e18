"""Measures this machine's peaks: matrix products in OpenVINO, a copy, the cost of one small layer.

Each benchmark keeps its best of several rounds: a peak is what the machine can do, and others on it
only ever make it look slower.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from engines.session import SessionSettings
from latency_budget.clock import Clock, MonotonicClock
from latency_budget.why.roofline import Machine

if TYPE_CHECKING:
    import onnx

Progress = Callable[[str, int, int], None]

CHANNELS, SIDE = 128, 28
SMALL_LAYERS = 64
COPY_BYTES = 16 * 2**20
"""As much as a network's tensors hold together, so that the copy meets the caches as they do."""
ROUNDS = 100
CPU_EFFICIENCY = (0.08, 1.0)
"""Assumed shares of the peaks; whole networks reached 13 % to 34 % of them, see docs/why.md."""
THIS_MACHINE = "this machine"


def measure_machine(
    *,
    threads: int | None = None,
    rounds: int = ROUNDS,
    copy_bytes: int = COPY_BYTES,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Machine:
    """Measures this machine in a few seconds.

    Args:
        threads: CPU threads, as the network will use; None for OpenVINO's choice.
        rounds: repetitions of each benchmark; the best one counts.
        copy_bytes: size of each of the two arrays of the copy.
        clock: where the time comes from.
        progress: called with (what, done, total).

    Raises:
        MissingExtraError: openvino is not installed.
    """
    note = progress or (lambda what, done, total: None)
    now = clock or MonotonicClock()
    operations = 2 * CHANNELS * CHANNELS * 9 * SIDE * SIDE
    peaks = {}
    for index, precision in enumerate(("fp32", "int8")):
        note(f"{precision} convolution", index, 4)
        model = _convolution_network(is_int8=precision == "int8")
        peaks[precision] = operations / _fastest_s(model, threads, rounds, now)
    note("copy", 2, 4)
    bandwidth = _copy_bandwidth(copy_bytes, rounds, threads or 2, now)
    note("small layers", 3, 4)
    per_layer = _fastest_s(_small_layers(), threads, rounds, now) / SMALL_LAYERS
    note("measured", 4, 4)
    return Machine(
        name=f"{THIS_MACHINE} ({platform.machine()})",
        peaks=peaks,
        bandwidth=bandwidth,
        overhead_s=(per_layer, per_layer),
        efficiency=CPU_EFFICIENCY,
        is_measured=True,
    )


def _fastest_s(model: "onnx.ModelProto", threads: int | None, rounds: int, clock: Clock) -> float:
    with _opened(model, threads) as session:
        feeds = {
            tensor.name: np.zeros(tensor.shape, tensor.dtype) + 0.5 for tensor in session.inputs
        }
        feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
        return _best(lambda: session.run_borrowed(feeds), rounds, clock)


def _best(action: Callable[[], object], rounds: int, clock: Clock) -> float:
    action()
    times = []
    for _ in range(rounds):
        begun = clock.now_ns()
        action()
        times.append(clock.now_ns() - begun)
    return max(min(times), 1) / 1e9


def _copy_bandwidth(size_bytes: int, rounds: int, threads: int, clock: Clock) -> float:
    """STREAM's copy, counted as one read and one write of each byte."""
    source = np.ones(size_bytes // 8)
    target = np.zeros_like(source)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:

        def copy() -> None:
            list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), parts))

        return 2 * source.nbytes / _best(copy, rounds, clock)


@contextmanager
def _opened(model: "onnx.ModelProto", threads: int | None) -> Iterator[Any]:
    from engines.runtimes import open_session

    with TemporaryDirectory() as folder:
        path = Path(folder) / "benchmark.onnx"
        path.write_bytes(model.SerializeToString())
        with open_session(path, "openvino", SessionSettings(threads=threads)) as session:
            yield session


def _convolution_network(*, is_int8: bool) -> "onnx.ModelProto":
    """One 3x3 convolution with 128 channels; its result is averaged, so that it is not copied."""
    from onnx import helper as h

    weight = np.random.default_rng(0).normal(size=(CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
    pads = {"pads": [1, 1, 1, 1]}
    weights: list[tuple[str, Any]]
    if not is_int8:
        nodes = [h.make_node("Conv", ["x", "w"], ["c"], **pads)]
        weights = [("w", weight)]
    else:
        nodes = [
            h.make_node("QuantizeLinear", ["x", "sx", "zero"], ["xq"]),
            h.make_node("DequantizeLinear", ["xq", "sx", "zero"], ["xd"]),
            h.make_node("DequantizeLinear", ["w", "sw", "zero"], ["wd"]),
            h.make_node("Conv", ["xd", "wd"], ["c"], **pads),
        ]
        weights = [
            ("w", np.clip(weight * 30, -127, 127).astype(np.int8)),
            ("sx", np.float32(0.01)),
            ("sw", np.float32(1 / 30)),
            ("zero", np.int8(0)),
        ]
    nodes.append(h.make_node("GlobalAveragePool", ["c"], ["y"]))
    return _build(nodes, weights, [1, CHANNELS, SIDE, SIDE], [1, CHANNELS, 1, 1])


def _small_layers() -> "onnx.ModelProto":
    """A chain of convolutions so small that only their start costs anything."""
    from onnx import helper as h

    weight = np.eye(8, dtype=np.float32).reshape(8, 8, 1, 1)
    names = ["x", *(f"t{index}" for index in range(1, SMALL_LAYERS)), "y"]
    nodes = [h.make_node("Conv", [before, "w"], [after]) for before, after in pairwise(names)]
    return _build(nodes, [("w", weight)], [1, 8, 4, 4], [1, 8, 4, 4])


def _build(
    nodes: list[Any], weights: Sequence[tuple[str, Any]], shape: list[int], result: list[int]
) -> "onnx.ModelProto":
    from onnx import TensorProto, numpy_helper
    from onnx import helper as h

    graph = h.make_graph(
        nodes,
        "benchmark",
        [h.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [h.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights],
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
