"""Errors of the compress package.

InputError
├── AlreadyQuantizedError   the network carries Q/DQ pairs or integer operators already
├── CalibrationError        the calibration samples do not fit, or drive the network to NaN
├── LatencyError            no network that was found is as fast as was asked for
└── FastEnoughError         the network is as fast as was asked for, as it is
"""

from artifacts.errors import InputError


class AlreadyQuantizedError(InputError):
    """The network is quantized already."""


class CalibrationError(InputError):
    """The calibration samples cannot calibrate this network."""


class LatencyError(InputError):
    """No network that was found is as fast as was asked for.

    Args:
        what, expected, fix: see `FramefitError`.
        fastest_ms: what the fastest one takes, in ms.
    """

    def __init__(self, what: str, expected: str, fix: str, *, fastest_ms: float) -> None:
        super().__init__(what, expected, fix)
        self.fastest_ms = fastest_ms


class FastEnoughError(InputError):
    """The network is as fast as was asked for, as it is.

    Args:
        what, expected: see `FramefitError`.
        latency_ms: what it takes.
    """

    def __init__(self, what: str, expected: str, *, latency_ms: float) -> None:
        super().__init__(what, expected)
        self.latency_ms = latency_ms
