"""The guard that keeps onnxruntime from rounding the weights of a layer in float.

A Conv, ConvTranspose or Gemm in float that reads a DequantizeLinear and whose result, behind Relu
and Clip or not, only a QuantizeLinear reads gets 8-bit weights when onnxruntime (seen with 1.31
and 1.32) opens the network: one scale for all channels, and a bias in int32
(`WeightBiasQuantization`). An output behind such a layer lost 10 dB. A LeakyRelu of slope 1 right
behind the layer changes no value, ends that search, and costs nothing: onnxruntime computes it in
the kernel of a Conv.
"""

import onnx
from onnx import helper

GUARD_SUFFIX = "_onnxruntime_guard"
ROUNDED_LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm"})
PASSED_BY_ROUNDING = frozenset({"Relu", "Clip"})
"""Operators between a layer and the quantizer that onnxruntime looks past."""


def make_guard(products: str, result: str) -> onnx.NodeProto:
    """Returns the node that guards a layer.

    Args:
        products: the name of what the layer writes from now on.
        result: the name of what it wrote, which the guard writes.
    """
    return helper.make_node("LeakyRelu", [products], [result], f"{result}{GUARD_SUFFIX}", alpha=1.0)
