"""Second moments of a layer's inputs: all that rounding has to know of the calibration pictures.

With x a column of the float network's inputs and q the same column in the quantized prefix, a
layer's squared output error with weights V instead of W is
E |W x - V q|^2 = tr(W S W') - 2 tr(W C V') + tr(V H V'), H = E[q q'], C = E[x q'], S = E[x x'].
H is the Hessian of GPTQ (Frantar et al., ICLR 2023) up to a factor of 2.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Columns = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Mean products over columns; `groups` are those of a grouped convolution.

    Attributes:
        hessian: [groups, in, in] H, of the quantized prefix with itself.
        cross: [groups, in, in] C, of the float inputs with those of the quantized prefix.
        power: [groups, out] mean squared float output of each row, tr(W S W') row by row.
        columns: how many there were.
    """

    hessian: NDArray[np.float64]
    cross: NDArray[np.float64]
    power: NDArray[np.float64]
    columns: int

    def row_errors(
        self, weights: NDArray[np.float64], rounded: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Returns E (W x - V q)^2 of each row, [out].

        Args:
            weights: [out, in] W.
            rounded: [out, in] V.
        """
        groups = len(self.hessian)
        wanted = weights.reshape(groups, -1, weights.shape[1])
        got = rounded.reshape(wanted.shape)
        error = self.power + (got @ self.hessian * got).sum(axis=2)
        error -= 2 * (wanted @ self.cross * got).sum(axis=2)
        return np.asarray(np.maximum(error, 0.0)).reshape(-1)

    def joined(self, other: "Moments | None") -> "Moments":
        """Returns the moments over the columns of both."""
        if other is None:
            return self
        mine = self.columns / (self.columns + other.columns)
        return Moments(
            hessian=mine * self.hessian + (1 - mine) * other.hessian,
            cross=mine * self.cross + (1 - mine) * other.cross,
            power=mine * self.power + (1 - mine) * other.power,
            columns=self.columns + other.columns,
        )

    def block_diagonal(self) -> "Moments":
        """Returns the same for one group that has the inputs of all, [1, groups * in, ...]."""
        groups, inputs = self.hessian.shape[:2]

        def spread(blocks: NDArray[np.float64]) -> NDArray[np.float64]:
            whole = np.zeros((groups, inputs, groups, inputs))
            index = np.arange(groups)
            whole[index, :, index, :] = blocks
            return whole.reshape(1, groups * inputs, groups * inputs)

        return Moments(
            hessian=spread(self.hessian),
            cross=spread(self.cross),
            power=self.power.sum(axis=0, keepdims=True),
            columns=self.columns,
        )


@dataclass
class MomentSums:
    """Adds up columns, picture by picture.

    Attributes:
        is_centered: around the mean of each input, as for a layer whose bias makes up for what
            rounding does to the mean of its outputs.
    """

    is_centered: bool
    _count: int = 0
    _sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def add(self, plain: Columns, quantized: Columns, outputs: Columns) -> None:
        """Adds one picture.

        Args:
            plain: [groups, in, n] float inputs.
            quantized: [groups, in, n] inputs in the quantized prefix.
            outputs: [groups, out, n] float outputs without bias.
        """
        self._count += plain.shape[2]
        parts = {
            "hessian": multiply_groups(quantized, quantized),
            "cross": multiply_groups(plain, quantized),
            "power": np.square(outputs, dtype=np.float64).sum(axis=2),
            "plain": plain.sum(axis=2, dtype=np.float64),
            "quantized": quantized.sum(axis=2, dtype=np.float64),
            "outputs": outputs.sum(axis=2, dtype=np.float64),
        }
        for name, value in parts.items():
            if name in self._sums:
                self._sums[name] += value
            else:
                self._sums[name] = value.astype(np.float64)

    def finish(self) -> Moments | None:
        """Returns the moments; None if nothing was added."""
        if not self._count:
            return None
        means = {name: total / self._count for name, total in self._sums.items()}
        hessian, cross, power = means["hessian"], means["cross"], means["power"]
        if self.is_centered:
            mean = means["quantized"]
            hessian -= mean[:, :, None] * mean[:, None, :]
            cross -= means["plain"][:, :, None] * mean[:, None, :]
            power = np.maximum(power - np.square(means["outputs"]), 0.0)
        return Moments(hessian=hessian, cross=cross, power=power, columns=self._count)


def multiply_groups(left: Columns, right: Columns) -> Columns:
    """Returns left right', [groups, a, b] of [groups, a, n] and [groups, b, n].

    A single group is multiplied as matrices, where BLAS does half of a product with itself.
    """
    if len(left) == 1:
        return np.asarray(left[0] @ right[0].T)[None]
    return np.asarray(left @ right.transpose(0, 2, 1))
