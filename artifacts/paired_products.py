"""Which products of 8-bit integers a processor without VNNI adds in 16 bits, where they overflow.

Its `vpmaddubsw` multiplies unsigned activations by signed weights and adds two neighbouring
products, cutting off what does not fit. The kernels of OpenVINO and onnxruntime pair the input
channels 2 i and 2 i + 1 at the same position of the window, and add in 32 bits from there on
(`benchmarks/paired_products.py`). Depthwise layers add all in 32 bits. Where groups of a
convolution have odd numbers of channels, pairs reach across positions.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import onnx
from numpy.typing import NDArray

from artifacts.graph_reading import attribute

LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
PAIR_SUM = 128
"""What two weights of one sign may be together: 255 * 128 is at most 2 ** 15 - 1."""


@dataclass(frozen=True)
class LayerProducts:
    """The products of a Conv, ConvTranspose, Gemm or MatMul with a constant weight.

    Attributes:
        shape: the weight's.
        axis: of its output channels, 0 or 1; the input channels are the other of the two.
        groups: of a convolution; 1 for products.
    """

    shape: tuple[int, ...]
    axis: int
    groups: int = 1

    @classmethod
    def of(cls, node: onnx.NodeProto, shape: tuple[int, ...]) -> Self | None:
        """Returns a layer's products; None for weights that are no matrices.

        Args:
            node: a Conv, ConvTranspose, Gemm or MatMul with a constant second input.
            shape: of that.
        """
        if node.op_type in ("Conv", "ConvTranspose"):
            return cls(shape, int(node.op_type == "ConvTranspose"), attribute(node, "group", 1))
        if len(shape) != 2:
            return None
        is_transposed = node.op_type == "Gemm" and attribute(node, "transB", 0)
        return cls(shape, 0 if is_transposed else 1)

    @property
    def has_pairs(self) -> bool:
        """Whether any products are added in 16 bits."""
        return self._inputs_of_group > 1

    def find_partners(self) -> NDArray[np.int64] | None:
        """Returns which weight of its row each one is paired with, [in]; -1 for none.

        A row holds the weights of one output channel, [input channels, *kernel] flattened. None
        where pairs reach across positions of the window.
        """
        if self.groups > 1 and self._inputs_of_group % 2:
            return None
        inputs, kernel = self.shape[1 - self.axis], int(np.prod(self.shape[2:]))
        channels = np.arange(inputs) ^ 1
        starts = np.where(channels < inputs, channels * kernel, -kernel)
        return np.maximum(starts[:, None] + np.arange(kernel), -1).reshape(-1)

    def count_overflowing(self, integers: NDArray[np.int8]) -> int:
        """Returns how many pairs of weights may overflow, or weights that no neighbours limit.

        Args:
            integers: the weight.
        """
        if not self.has_pairs:
            return 0
        partners = self.find_partners()
        rows = np.moveaxis(integers, self.axis, 0).reshape(self.shape[self.axis], -1)
        rows = rows.astype(np.int16)
        if partners is None:
            return int(np.count_nonzero(np.abs(rows) > PAIR_SUM // 2))
        over = [np.count_nonzero(sum_pairs(sign * rows, partners) > PAIR_SUM) for sign in (1, -1)]
        return int(sum(over)) // 2

    @property
    def _inputs_of_group(self) -> int:
        return self.shape[0] // self.groups if self.axis == 1 else self.shape[1]


def sum_pairs(rows: NDArray, partners: NDArray[np.int64]) -> NDArray:
    """Returns what is positive of each value together with its partner's, [..., in]."""
    positive = np.maximum(rows, 0)
    return np.asarray(positive + np.where(partners < 0, 0, positive[..., partners]))
