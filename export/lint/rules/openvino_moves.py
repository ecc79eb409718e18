"""What makes or reads a tensor, beyond what OpenVINO moves quantizers past or joins with it."""

import numpy as np
import onnx

from export.lint.graph import LintGraph

PASSED = frozenset(
    {
        "Add",
        "BatchNormalization",
        "Clip",
        "Div",
        "Mul",
        "Relu",
        "Reshape",
        "Squeeze",
        "Sub",
        "Transpose",
        "Unsqueeze",
    }
)
"""Those with two operands only where one is constant."""


def find_maker(
    graph: LintGraph, tensor: str, passed: frozenset[str] = PASSED
) -> onnx.NodeProto | None:
    """Returns the node that makes a tensor, beyond operators that may stand between.

    Without `passed` these are what quantizers are moved past.
    """
    maker = graph.producer(tensor)
    while maker is not None and maker.op_type in passed:
        computed = [name for name in maker.input if name and not graph.is_fixed(name)]
        if len(computed) != 1:
            return None
        maker = graph.producer(computed[0])
    return maker


def find_reader(graph: LintGraph, tensor: str, passed: frozenset[str]) -> onnx.NodeProto | None:
    """Returns the one node that reads a tensor, beyond operators that may stand between."""
    reader = _sole_reader(graph, tensor)
    while reader is not None and reader.op_type in passed:
        computed = [name for name in reader.input if name and not graph.is_folded(name)]
        reader = _sole_reader(graph, reader.output[0]) if len(computed) == 1 else None
    return reader


def _sole_reader(graph: LintGraph, tensor: str) -> onnx.NodeProto | None:
    readers = graph.consumers(tensor)
    return readers[0] if len(readers) == 1 and tensor not in graph.outputs else None


def has_bias(graph: LintGraph, layer: onnx.NodeProto) -> bool:
    """Whether a convolution has a bias other than 0, with which its rescaling stays with it."""
    if len(layer.input) < 3 or not layer.input[2]:
        return False
    bias = graph.constant(layer.input[2])
    return bias is None or bool(np.any(bias))
