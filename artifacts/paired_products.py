"""Which products of 8-bit integers a processor without VNNI adds in 16 bits, where they overflow.

Its `vpmaddubsw` multiplies unsigned activations by signed weights and adds two neighbouring
products, cutting off what does not fit; from there on all is added in 32 bits. OpenVINO's kernels
pair the input channels 2 i and 2 i + 1 at each position of the window, those of onnxruntime do so
position by position (`benchmarks/paired_products.py`).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import onnx
from numpy.typing import NDArray

from artifacts.graph_reading import attribute

RUNTIMES = ("openvino", "onnxruntime")
"""Whose pairs are known."""
PAIR_SUM = 128
"""What two weights of one sign may be together: 255 * 128 is at most 2 ** 15 - 1."""


@dataclass(frozen=True)
class LayerProducts:
    """The products of a layer with a constant weight, in the order in which a runtime adds them.

    Attributes:
        shape: the weight's.
        axis: of its output channels, 0 or 1; the input channels are the other of the two.
        groups: of a convolution; 1 for products.
        is_position_first: whether all channels of one position of the window follow each other,
            and the next position then, so that odd numbers of channels pair two positions; else
            channels are paired at each position.
    """

    shape: tuple[int, ...]
    axis: int
    groups: int = 1
    is_position_first: bool = False

    @classmethod
    def of(cls, node: onnx.NodeProto, shape: tuple[int, ...], runtime: str) -> Self | None:
        """Returns a layer's products; None for weights that are no matrices.

        Args:
            node: a Conv, ConvTranspose, Gemm or MatMul with a constant second input.
            shape: of that.
            runtime: "openvino" or "onnxruntime"; others are taken for the first.
        """
        if node.op_type in ("Conv", "ConvTranspose"):
            axis, groups = int(node.op_type == "ConvTranspose"), attribute(node, "group", 1)
            is_odd_group = groups > 1 and cls(shape, axis, groups).inputs_of_group % 2 == 1
            return cls(shape, axis, groups, is_odd_group or runtime == "onnxruntime")
        if len(shape) != 2:
            return None
        is_transposed = node.op_type == "Gemm" and attribute(node, "transB", 0)
        return cls(shape, 0 if is_transposed else 1)

    @property
    def inputs_of_group(self) -> int:
        """How many input channels an output channel reads."""
        return self.shape[0] // self.groups if self.axis == 1 else self.shape[1]

    @property
    def has_pairs(self) -> bool:
        """Whether any products are added in 16 bits."""
        return bool((self.find_partners() >= 0).any())

    def find_partners(self) -> NDArray[np.int64]:
        """Returns which weight of its row each one is paired with, [in]; -1 for none.

        A row holds the weights of one output channel, [input channels, *kernel] flattened.
        Depthwise layers add all in 32 bits, unless channels have several outputs each: then
        positions are paired, as where onnxruntime reads a picture of one channel.
        """
        inputs, kernel = self.shape[1 - self.axis], int(np.prod(self.shape[2:]))
        partners = np.full(inputs * kernel, -1)
        if self.inputs_of_group == 1 and (self.shape[0] == self.groups or self.axis == 1):
            return partners
        index = np.arange(inputs * kernel).reshape(inputs, kernel)
        lines = index.T.reshape(1, -1) if self.is_position_first else index.T
        paired = lines[:, : lines.shape[1] // 2 * 2].reshape(-1, 2)
        partners[paired] = paired[:, ::-1]
        return partners

    def count_overflowing(self, integers: NDArray[np.integer]) -> int:
        """Returns how many pairs of weights may overflow.

        Args:
            integers: the weight.
        """
        partners = self.find_partners()
        rows = np.moveaxis(integers, self.axis, 0).reshape(self.shape[self.axis], -1)
        rows = rows.astype(np.int16)
        over = [np.count_nonzero(sum_pairs(sign * rows, partners) > PAIR_SUM) for sign in (1, -1)]
        return int(sum(over)) // 2


def sum_pairs(rows: NDArray, partners: NDArray[np.int64]) -> NDArray:
    """Returns what is positive of each value together with its partner's.

    Args:
        rows: [..., in].
        partners: [in], or [orders, in] for the pairs of several runtimes.

    Returns:
        [..., in] or [..., orders, in].
    """
    positive = np.maximum(rows, 0)
    own = positive if partners.ndim == 1 else positive[..., None, :]
    return np.asarray(own + np.where(partners < 0, 0, positive[..., partners]))
