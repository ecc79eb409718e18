"""How far a layer's output behind quantized layers is from the float one, channel by channel.

Sums are taken piece by piece: differences of whole maps would be written to memory and read again,
and new memory costs more than the arithmetic.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from compress.quantize.graph import Array
from compress.sqnr import SignalToNoise, require_same_shape

PIECE = 1 << 17
"""Values that are looked at at a time: what a processor's core holds near itself. Sums in single
precision go no further."""


@dataclass(frozen=True, kw_only=True)
class ChannelErrors:
    """Sums over a layer's output, of some samples.

    Attributes:
        count: values per channel.
        signal: the sum of squares of the float output.
        errors: [C], the sum of float minus quantized output.
        squares: [C], the sum of their squares.
    """

    count: int
    signal: float
    errors: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, expected: Array, got: Array, axis: int) -> Self:
        """Looks at one sample's output.

        Args:
            expected: of the float network.
            got: behind the quantized prefix.
            axis: of the channels.

        Raises:
            CalibrationError: the shapes differ.
        """
        require_same_shape(expected, got)
        channels = expected.shape[axis]
        errors, squares, signal = np.zeros(channels), np.zeros(channels), 0.0
        if expected.size == 0:
            return cls(count=0, signal=signal, errors=errors, squares=squares)
        room = np.empty(min(max(PIECE, channels), expected.size), np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            for rows, wanted, found in _cut(expected, got, axis % expected.ndim):
                difference = room[: wanted.size].reshape(wanted.shape)
                np.subtract(wanted, found, out=difference)
                errors[rows] += difference.sum(axis=1)
                squares[rows] += np.einsum("ci,ci->c", difference, difference)
                signal += float(np.vdot(wanted, wanted))
        return cls(count=expected.size // channels, signal=signal, errors=errors, squares=squares)

    @classmethod
    def sum(cls, parts: Iterable[Self]) -> Self:
        """Returns the sums over the samples of all parts, at least one."""
        return reduce(
            lambda one, other: cls(
                count=one.count + other.count,
                signal=one.signal + other.signal,
                errors=one.errors + other.errors,
                squares=one.squares + other.squares,
            ),
            parts,
        )

    @property
    def means(self) -> NDArray[np.float64]:
        """[C], what the quantized output's mean lacks."""
        return self.errors / max(self.count, 1)

    def meter(self, offset: NDArray[np.float64] | float = 0.0) -> SignalToNoise:
        """Returns signal and noise once `offset` [C] was added to the quantized output."""
        noise = self.squares - 2 * offset * self.errors + self.count * np.square(offset)
        return SignalToNoise(signal=self.signal, noise=float(np.maximum(noise, 0.0).sum()))


def _cut(expected: Array, got: Array, axis: int) -> Iterator[tuple[slice, Array, Array]]:
    """Yields the channels of each piece, and the piece [channels, values] of both arrays."""
    channels = expected.shape[axis]
    outer, inner = math.prod(expected.shape[:axis]), math.prod(expected.shape[axis + 1 :])
    if inner == 1:
        both = [array.reshape(outer, channels).T[None] for array in (expected, got)]
        outer, inner = 1, outer
        length = max(1, PIECE // channels)
    else:
        both = [array.reshape(outer, channels, inner) for array in (expected, got)]
        length = min(inner, PIECE)
    height = max(1, PIECE // length)
    for at, first, start in product(
        range(outer), range(0, channels, height), range(0, inner, length)
    ):
        rows, places = slice(first, first + height), slice(start, start + length)
        wanted, found = (array[at, rows, places] for array in both)
        yield rows, wanted, found
