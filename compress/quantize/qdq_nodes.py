"""The Q/DQ pair on a tensor."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Array
from compress.quantize.qparams import QParams


def qdq_nodes(
    tensor: str, qparams: QParams, take_name: Callable[[str], str] = str
) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Returns a Q/DQ pair on a tensor, and its two constants.

    Args:
        tensor: its name, with which the new ones begin.
        qparams: of the integers.
        take_name: makes of each new name one that the graph does not have yet; as it is, the pair
            is for a graph of its own.
    """
    scale, zero_point, integers, real = (
        take_name(f"{tensor}_{end}") for end in ("scale", "zero_point", "quantized", "dequantized")
    )
    nodes = [
        helper.make_node(operator, [source, scale, zero_point], [result], name)
        for operator, source, result, name in (
            ("QuantizeLinear", tensor, integers, take_name(f"{tensor}_QuantizeLinear")),
            ("DequantizeLinear", integers, real, take_name(f"{tensor}_DequantizeLinear")),
        )
    ]
    constants = {
        scale: np.asarray(qparams.scale, np.float32),
        zero_point: np.asarray(qparams.zero_point, qparams.grid.dtype),
    }
    return nodes, constants
