"""What gates cost in integers and in float: the table of docs/experiments.md.

Run `python -m benchmarks.placement_passes`; with names of timm networks only those. Per network and
target: the SQNR on held-out pictures, pooled; the Q/DQ pairs; the warnings of `export lint`; and
OpenVINO's CPU time against float (mean of the fastest tenth of interleaved runs, one thread).
"""

import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import torch

from artifacts.onnx_file import load_onnx, save_onnx
from artifacts.synthetic_pictures import draw_pictures
from benchmarks.zoo.build import build_network
from benchmarks.zoo.networks import ZooNetwork
from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.graph import Array, Graph
from compress.quantize.settings import QuantizeSettings
from compress.quantize.simplify import simplify
from engines.runtimes import open_session
from engines.session import SessionSettings
from export.lint import lint_file
from export.to_onnx import export_onnx

NETWORKS = (
    "lcnet_050",
    "mobilenetv3_large_100",
    "regnety_008",
    "legacy_seresnet18",
    "efficientnet_b0",
)
TARGETS = ("tensorrt", "openvino")
CALIBRATION, HELD_OUT, ROUNDS = 8, 16, 150
POOLS = frozenset({"GlobalAveragePool", "ReduceMean"})
LAYERS = frozenset({"Conv", "Gemm"})


def main() -> None:
    """Prints a line per network, target and variant."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            for line in measure_gates(ZooNetwork(name=name), Path(folder)):
                sys.stdout.write(line + "\n")
                sys.stdout.flush()


def measure_gates(network: ZooNetwork, folder: Path) -> list[str]:
    """Quantizes a network with its gates in integers and in float, and measures both."""
    path = folder / "float.onnx"
    shape = (1, 3, network.size, network.size)
    export_onnx(build_network(network), path, input_shape=shape, notify=lambda line: None)
    model = load_onnx(path)
    rng = np.random.default_rng(5)
    name = model.graph.input[0].name
    pictures = [{name: draw_pictures(shape, rng)} for _ in range(CALIBRATION + HELD_OUT)]
    gates = find_gate_layers(model)
    lines = []
    for target in TARGETS:
        settings = QuantizeSettings(target=target)
        variants = {"integers": settings, "float": replace(settings, keep_float=gates)}
        files, facts = {"reference": path}, {}
        for variant, each in variants.items():
            files[variant] = folder / f"{target}.{variant}.onnx"
            facts[variant] = _quantize(model, pictures, each, files[variant])
        times = _time(files, pictures[0])
        for variant, fact in facts.items():
            ratio = times[variant] / times["reference"]
            lines.append(
                f"{network.name}, {target}, {len(gates)} gate layers in {variant}: "
                f"{fact}, {ratio:.2f} of float's time"
            )
    return lines


def find_gate_layers(model: onnx.ModelProto) -> tuple[str, ...]:
    """Returns the layers between a pool and the product that applies the gate, in any order."""
    graph = Graph(model)
    simplify(graph)
    layers: set[str] = set()
    for node in graph.nodes:
        sizes = [math.prod(graph.shapes.get(tensor, (0,))) for tensor in node.input]
        if node.op_type == "Mul" and len(sizes) == 2 and 0 < min(sizes) < max(sizes):
            layers |= _walk_back(graph, node.input[sizes.index(min(sizes))])
    return tuple(sorted(layers))


def _walk_back(graph: Graph, tensor: str) -> set[str]:
    layers: set[str] = set()
    waiting, seen = [tensor], {tensor}
    while waiting:
        maker = graph.producer(waiting.pop())
        if maker is None:
            return set()
        if maker.op_type in POOLS:
            continue
        layers |= {maker.name} if maker.op_type in LAYERS else set()
        read = {name for name in maker.input if name and name not in graph.weights} - seen
        waiting += sorted(read)
        seen |= read
    return layers


def _quantize(
    model: onnx.ModelProto,
    pictures: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    path: Path,
) -> str:
    result = quantize_model(model, pictures[:CALIBRATION], settings)
    save_onnx(result.model, path, metadata={})
    outputs = compare_models(model, result.model, pictures[CALIBRATION:])["outputs"]
    sqnr_db = min(output["sqnr_db"] for output in outputs.values())
    pairs = sum(node.op_type == "QuantizeLinear" for node in result.model.graph.node)
    warnings = lint_file(path, target="tensorrt-rtx").counts["warning"]
    return f"{sqnr_db:.1f} dB, {pairs} pairs, {warnings} warnings"


def _time(files: Mapping[str, Path], picture: dict[str, Array]) -> dict[str, float]:
    with ExitStack() as stack:
        sessions = {
            name: stack.enter_context(open_session(path, "openvino", SessionSettings(threads=1)))
            for name, path in files.items()
        }
        spent: dict[str, list[int]] = {name: [] for name in sessions}
        for _ in range(ROUNDS):
            for name, session in sessions.items():
                start = time.process_time_ns()
                session.run(picture)
                spent[name].append(time.process_time_ns() - start)
    return {name: float(np.mean(sorted(each)[: ROUNDS // 10])) for name, each in spent.items()}


if __name__ == "__main__":
    main()
