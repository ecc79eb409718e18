"""Which nodes TensorRT joins with a Q or a DQ, and which make it a kernel of its own."""

import onnx

from export.early_casts import MOVES
from export.lint.graph import LAYERS, LintGraph

POINTWISE = frozenset(
    {
        "Add",
        "BatchNormalization",
        "Cast",
        "Clip",
        "Div",
        "Elu",
        "Erf",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Max",
        "Min",
        "Mish",
        "Mul",
        "PRelu",
        "Relu",
        "Sigmoid",
        "Softplus",
        "Sub",
        "Swish",
        "Tanh",
    }
)
"""Element by element: joined with the layer before them and with the Q behind them."""

COMMUTING = MOVES | {"MaxPool", "Pad"}
"""Move values without new ones: Q moves to before them, DQ to behind them."""

JOINED = frozenset(
    {
        "GroupNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "LogSoftmax",
        "RMSNormalization",
        "Resize",
        "Softmax",
        "Upsample",
    }
)
"""Compute in float, in a generated kernel that takes a DQ before and a Q behind them in."""

REDUCTIONS = frozenset(
    {"GlobalAveragePool", "GlobalMaxPool", "ReduceMax", "ReduceMean", "ReduceSum"}
)
"""Give few values, so that a Q of its own behind them moves little."""

ACTIVATIONS = frozenset(
    {
        "Clip",
        "Elu",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "PRelu",
        "Relu",
        "Sigmoid",
        "Softplus",
        "Swish",
        "Tanh",
    }
)


def find_makers(graph: LintGraph, tensor: str) -> list[onnx.NodeProto | None]:
    """Returns the nodes that make a tensor, behind all that TensorRT joins with the Q after it.

    None stands for a network input.
    """
    makers: list[onnx.NodeProto | None] = []
    pending, seen = [tensor], {tensor}
    while pending:
        node = graph.producer(pending.pop())
        if node is None:
            makers.append(None)
        elif node.op_type in POINTWISE | COMMUTING:
            names = [name for name in node.input if name and not graph.is_fixed(name)]
            pending += [name for name in names if name not in seen]
            seen |= set(names)
        elif not any(other is node for other in makers):
            makers.append(node)
    return makers


def is_float_layer(graph: LintGraph, node: onnx.NodeProto) -> bool:
    """Returns whether a layer with constant weights computes in float."""
    if node.op_type not in LAYERS or graph.is_integer_layer(node):
        return False
    return len(node.input) > 1 and graph.is_fixed(node.input[1])
