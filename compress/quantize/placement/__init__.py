"""Where a runtime wants its Q/DQ pairs."""

from compress.quantize.placement.contract import Declined, Placement, QuantizedNode, find_read
from compress.quantize.placement.onnxruntime import OnnxRuntime
from compress.quantize.placement.openvino import OpenVINO
from compress.quantize.placement.tensorrt import TensorRT

PLACEMENTS: dict[str, type[Placement]] = {
    "tensorrt": TensorRT,
    "openvino": OpenVINO,
    "onnxruntime": OnnxRuntime,
}

__all__ = [
    "PLACEMENTS",
    "Declined",
    "OnnxRuntime",
    "OpenVINO",
    "Placement",
    "QuantizedNode",
    "TensorRT",
    "find_read",
]
