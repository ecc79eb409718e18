"""OpenVINO's placement: TensorRT's edges, with unsigned integers.

A ReLU's output in uint8 has twice the resolution that int8 gives it, and other activations use the
whole grid with a zero_point of their own. VNNI multiplies unsigned activations by signed weights
natively: OpenVINO turns int8 activations into uint8 ones anyway.
"""

from dataclasses import dataclass

from compress.quantize.placement.tensorrt import TensorRT
from compress.quantize.qparams import IntegerGrid


@dataclass(frozen=True, kw_only=True)
class OpenVINO(TensorRT):
    """Asymmetric uint8 everywhere."""

    symmetric: bool = False
    attention_slower_on: str = "OpenVINO"

    def activation_grid(self, low: float) -> IntegerGrid:
        """Returns uint8, whatever the values."""
        del low
        return IntegerGrid(bits=8, is_signed=False)
