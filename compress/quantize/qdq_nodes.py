"""The Q/DQ pair on a tensor."""

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Array
from compress.quantize.qparams import QParams


def qdq_nodes(
    tensor: str, scale: str, zero_point: str, qparams: QParams
) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Returns a Q/DQ pair on a tensor, and its two constants."""
    integers, real = f"{tensor}_quantized", f"{tensor}_dequantized"
    nodes = [
        helper.make_node(
            "QuantizeLinear", [tensor, scale, zero_point], [integers], f"{tensor}_QuantizeLinear"
        ),
        helper.make_node(
            "DequantizeLinear", [integers, scale, zero_point], [real], f"{tensor}_DequantizeLinear"
        ),
    ]
    constants = {
        scale: np.asarray(qparams.scale, np.float32),
        zero_point: np.asarray(qparams.zero_point, qparams.grid.dtype),
    }
    return nodes, constants
