"""Meters that add up what is known of one tensor, sample by sample."""

import numpy as np
from numpy.typing import NDArray

from compress.diagnose.report import ActivationFinding
from compress.quantize.qparams import QParams, fake_quantize
from compress.sqnr import to_db

OUTLIER_RATIO = 8.0
"""A channel is an outlier where its largest magnitude exceeds the median channel's so many times:
the median channel is then left with less than 5 of its 8 bits."""


class ChannelMeter:
    """Signal and error of each channel of a tensor.

    Args:
        axis: of the channels.
    """

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._signal = np.zeros(1)
        self._noise = np.zeros(1)

    def update(self, expected: NDArray, got: NDArray) -> None:
        """Adds one sample."""
        axes = tuple(axis for axis in range(expected.ndim) if axis != self._axis % expected.ndim)
        wide = expected.astype(np.float64)
        self._signal = self._signal + np.sum(np.square(wide), axis=axes)
        self._noise = self._noise + np.sum(np.square(got - wide), axis=axes)

    @property
    def sqnr_db(self) -> float:
        """Of all channels together."""
        return float(to_db(self._signal.sum(keepdims=True), self._noise.sum(keepdims=True))[0])

    @property
    def channel_db(self) -> tuple[float, ...]:
        """SQNR per channel, in dB."""
        return tuple(float(value) for value in to_db(self._signal, self._noise))


class ActivationMeter:
    """What a Q/DQ pair does to the tensor it reads.

    Args:
        tensor: its name.
        qparams: of the pair.
    """

    def __init__(self, tensor: str, qparams: QParams) -> None:
        self._tensor = tensor
        self._qparams = qparams
        self._magnitudes = np.zeros(1)
        self._low, self._high = np.inf, -np.inf
        self._count = self._beyond = 0
        self._signal = self._noise = self._clipped = 0.0

    def update(self, values: NDArray) -> None:
        """Adds one sample of the tensor; one without values (nothing was found) says nothing."""
        if values.size == 0:
            return
        axis = 1 if values.ndim in (2, 4, 5) else values.ndim - 1
        axes = tuple(other for other in range(values.ndim) if other != axis)
        self._magnitudes = np.maximum(self._magnitudes, np.abs(values).max(axis=axes))
        self._low = min(self._low, float(values.min()))
        self._high = max(self._high, float(values.max()))
        half = self._qparams.scale / 2
        is_beyond = (values < self._qparams.low - half) | (values > self._qparams.high + half)
        wide = values.astype(np.float64)
        squared = np.square(fake_quantize(values, self._qparams) - wide)
        self._signal += float(np.sum(np.square(wide)))
        self._noise += float(np.sum(squared))
        self._clipped += float(np.sum(squared[is_beyond]))
        self._count += values.size
        self._beyond += int(is_beyond.sum())

    def finding(self) -> ActivationFinding:
        """Returns what was seen."""
        alive = self._magnitudes[self._magnitudes > 0]
        median = float(np.median(alive)) if alive.size else 1.0
        order = np.argsort(-self._magnitudes)
        outliers = [
            int(index) for index in order if self._magnitudes[index] > OUTLIER_RATIO * median
        ]
        return ActivationFinding(
            tensor=self._tensor,
            low=self._low,
            high=self._high,
            represented_low=self._qparams.low,
            represented_high=self._qparams.high,
            saturated=self._beyond / max(self._count, 1),
            clipping_share=self._clipped / self._noise if self._noise else 0.0,
            sqnr_db=float(to_db(np.array([self._signal]), np.array([self._noise]))[0]),
            outlier_channels=tuple(outliers),
            outlier_ratio=float(self._magnitudes.max() / median),
        )
