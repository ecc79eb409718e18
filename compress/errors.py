"""Errors of the compress package.

InputError
├── AlreadyQuantizedError   the network carries Q/DQ pairs or integer operators already
└── CalibrationError        the calibration samples do not fit, or drive the network to NaN
"""

from artifacts.errors import InputError


class AlreadyQuantizedError(InputError):
    """The network is quantized already."""


class CalibrationError(InputError):
    """The calibration samples cannot calibrate this network."""
