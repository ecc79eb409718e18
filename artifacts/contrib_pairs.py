"""The Q/DQ pairs of com.microsoft, written as the standard ones.

onnxruntime's quantizer writes them for 16-bit and 4-bit integers below opset 21, where the standard
operators do not have these types, and wherever `UseQDQContribOps` is set. They compute the same;
but shape inference stops at them, and no other reader of a graph sees a quantized network.
"""

from pathlib import Path

import onnx
from onnx import TensorProto

from artifacts.fused_operators import DOMAIN, OLDEST_OPSET
from artifacts.graph_checks import iter_nodes, model_opset
from artifacts.opset import upgrade_opset

_PAIR = frozenset({"QuantizeLinear", "DequantizeLinear"})
_WIDE_OPSET = 21
_WIDE = frozenset(
    {TensorProto.INT16, TensorProto.UINT16, TensorProto.INT4, TensorProto.UINT4},
)


def write_standard_pairs(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Returns the model with standard Q/DQ; itself, edited, where its opset has their types.

    Where it cannot be brought to the opset that they need, it stays as it is.

    Args:
        model: a checked model.
        path: its file, for the errors.
    """
    if not any(map(_is_contrib_pair, iter_nodes(model.graph.node))):
        return model
    opset = _WIDE_OPSET if _has_wide_integers(model) else OLDEST_OPSET
    model = upgrade_opset(model, path, target_opset=opset)
    if model_opset(model) >= opset:
        for node in iter_nodes(model.graph.node):
            if _is_contrib_pair(node):
                node.domain = ""
    return model


def _is_contrib_pair(node: onnx.NodeProto) -> bool:
    return node.domain == DOMAIN and node.op_type in _PAIR


def _has_wide_integers(model: onnx.ModelProto) -> bool:
    """Says whether a pair has integers of a type that came later; its zero point tells."""
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return any(
        kinds.get(name) in _WIDE
        for node in iter_nodes(model.graph.node)
        if _is_contrib_pair(node)
        for name in node.input
    )
