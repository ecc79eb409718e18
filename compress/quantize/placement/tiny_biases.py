"""A bias for convolutions that have none, where OpenVINO would turn their activation round.

    Conv (without bias) - ReLU - Mul(-1.7), Neg, 1 - x, BatchNormalization

`artifacts/openvino_rescaling.py` says how. Where the Conv has a bias its rescaling stays. A bias of
zeros is taken out; one of 1e-30 changes no result that is not that small itself.
"""

import numpy as np
import onnx

from artifacts.openvino_rescaling import ACTIVATIONS, CONVOLUTIONS
from compress.quantize.graph import Graph

TINY = 1e-30


def add_tiny_biases(graph: Graph) -> list[str]:
    """Adds them in place in front of such activations; returns the names of the nodes."""
    changed = []
    for node in graph.nodes:
        readers = graph.consumers(node.output[0]) if node.op_type in CONVOLUTIONS else []
        if not any(reader.op_type in ACTIVATIONS for reader in readers):
            continue
        channels = (graph.shapes.get(node.output[0]) or (0, 0))[1]
        if channels and not _has_bias(graph, node):
            name = graph.unused_name(f"{node.name}_tiny_bias")
            graph.weights[name] = np.full(channels, TINY, np.float32)
            node.input[:] = [*node.input[:2], name]
            changed.append(node.name)
    graph.index()
    return changed


def _has_bias(graph: Graph, node: onnx.NodeProto) -> bool:
    bias = node.input[2] if len(node.input) > 2 else ""
    return bool(bias) and (bias not in graph.weights or bool(np.any(graph.weights[bias])))
