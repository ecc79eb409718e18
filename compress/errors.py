"""Errors of the compress package.

InputError
├── AlreadyQuantizedError   the network carries Q/DQ pairs or integer operators already
├── CalibrationError        the calibration samples do not fit, or drive the network to NaN
└── LatencyError            no network that was found is as fast as was asked for
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
