"""OpenVINO's placement: TensorRT's edges, with unsigned integers where nothing is negative.

A ReLU's output in uint8 has twice the resolution that int8 gives it, and VNNI multiplies unsigned
activations by signed weights natively.
"""

from dataclasses import dataclass

from compress.quantize.placement.tensorrt import TensorRT
from compress.quantize.qparams import IntegerGrid


@dataclass(frozen=True, kw_only=True)
class OpenVINO(TensorRT):
    """Unsigned where no value is negative, else signed symmetric."""

    def activation_grid(self, low: float) -> IntegerGrid:
        """Returns uint8 for tensors without negative values, else int8."""
        return IntegerGrid(bits=8, is_signed=low < 0)
