"""Reductions of which OpenVINO 2026.4 does not read the axes: below opset 18, an attribute.

It reduces all axes then, in float too. Other reductions, and these from opset 18 on, are right.
"""

import onnx

from artifacts.graph_reading import attribute

MISREAD = frozenset({"ReduceL1", "ReduceLogSum", "ReduceLogSumExp"})


def read_missed_axes(node: onnx.NodeProto) -> tuple[int, ...]:
    """Returns the axes that a node reduces and OpenVINO does not read; () of others."""
    if node.op_type not in MISREAD or node.domain not in ("", "ai.onnx"):
        return ()
    return tuple(attribute(node, "axes", ()))
