"""Where a runtime wants its Q/DQ pairs."""

from compress.quantize.placement.contract import Declined, Placement, QuantizedNode
from compress.quantize.placement.openvino import OpenVINO
from compress.quantize.placement.tensorrt import TensorRT

PLACEMENTS: dict[str, type[Placement]] = {"tensorrt": TensorRT, "openvino": OpenVINO}

__all__ = ["PLACEMENTS", "Declined", "OpenVINO", "Placement", "QuantizedNode", "TensorRT"]
