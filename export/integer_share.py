"""Refuses to call a network INT8 whose layers compute in float."""

import logging

import onnx

from artifacts.errors import InputError
from export.lint.graph import LAYERS, LintGraph

_log = logging.getLogger(__name__)

FEW = 0.1


def require_integer_layers(model: onnx.ModelProto, name: str) -> None:
    """Refuses a network that is not quantized; warns of one that nearly is not.

    A layer counts by the Q/DQ of its second operand, its weight: pairs at the network's edges leave
    all layers in float. Networks without a Conv, ConvTranspose, Gemm or MatMul are let through.

    Args:
        model: the network.
        name: what to call it in messages.

    Raises:
        InputError: it has no Q/DQ, or no layer's weight has.
    """
    graph = LintGraph(model)
    layers = list(graph.of(*LAYERS))
    quantized = [node for node in layers if graph.dequantizer(node.input[1]) is not None]
    if not graph.is_quantized:
        raise InputError(
            f"{name} is a float network, so there is nothing to build in INT8",
            "a network with Q/DQ",
            f"run: compress quantize {name} --data CALIB",
        )
    if layers and not quantized:
        raise InputError(
            f"{name} has Q/DQ on the weight of none of its {len(layers)} layers, so all of them "
            "would compute in float",
            "Q/DQ on what the layers read",
            "quantize the float network with compress quantize",
        )
    if len(quantized) < FEW * len(layers):
        _log.warning(
            "%s: only %d of %d layers have Q/DQ on their weight, the others compute in float; "
            "framefit export lint names them",
            name,
            len(quantized),
            len(layers),
        )
