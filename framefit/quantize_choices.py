"""What is decided before a quantization: by the target, this processor and what was asked for."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from artifacts.processor import (
    PAIRED_SUMS,
    fuses_silu_best,
    overflows_on_int8,
    read_flags,
    takes_zero_points_free,
)
from framefit.network_clock import SETTLED, SETTLED_FORM, NetworkClock

if TYPE_CHECKING:
    from compress.quantize.settings import QuantizeSettings

_log = logging.getLogger(__name__)


def choose_weights(target: str | None) -> str:
    """Returns the type of weights for a target that runs on this processor.

    Args:
        target: where the network runs; TensorRT's integers do not depend on the processor. None
            where nobody said so: a file that is for TensorRT may be run here too.

    Returns:
        int8, or int8-pairs where sums of products would overflow.
    """
    overflows = target != "tensorrt" and overflows_on_int8(read_flags())
    return "int8-pairs" if overflows else "int8"


def warn_of_pairs(weights: str, target: str | None) -> None:
    """Says what `choose_weights` chose, where that is not the usual type."""
    if weights == "int8-pairs":
        _log.warning(
            "%s: weights are kept to sums that fit (int8-pairs); --weights int8 for processors "
            "that have it%s",
            *(PAIRED_SUMS, "" if target else ", and for TensorRT"),
        )


def open_clock(settings: "QuantizeSettings") -> NetworkClock:
    """Returns what times networks for a quantization.

    TensorRT needs a GPU and minutes of building for each network; OpenVINO stands in for it, and
    a warning says so. A search tells sets of layers apart that differ by less than forms may.
    """
    runtime = settings.target
    if runtime == "tensorrt":
        _log.warning("the layers for TensorRT are chosen by their times on openvino, a stand-in")
        runtime = "openvino"
    settled = SETTLED_FORM if settings.allowance is None else SETTLED
    return NetworkClock(runtime, is_to_choose=True, settled=settled)


def choose_clock(settings: "QuantizeSettings", *, is_timed: bool) -> NetworkClock | None:
    """Returns the clock of a quantization; None where its result is not timed.

    Integers other than INT8 are chosen for size or quality, and TensorRT does not run everywhere.
    """
    is_int8 = settings.weights != "int4" and settings.activations == "int8"
    if settings.allowance is not None and settings.weights == "int4":
        _log.warning(
            "INT4 weights make a file smaller, not faster, and a preference goes by latency: "
            "layers that it leaves in float are larger instead; leave it out for the size"
        )
    if settings.allowance is not None or (is_timed and is_int8 and settings.target != "tensorrt"):
        return open_clock(settings)
    return None


def settle_forms(settings: "QuantizeSettings") -> "QuantizeSettings":
    """Returns the settings with the forms whose time need not be measured on this processor.

    What saves a few percent at most is not looked for unless speed is what counts.
    """
    if settings.target != "openvino":
        return settings
    flags = read_flags()
    if settings.swish_by_tanh is None and fuses_silu_best(flags):
        settings = replace(settings, swish_by_tanh=False)
    is_open = settings.symmetric is None and settings.activations == "int8"
    if takes_zero_points_free(flags) and is_open and not settings.is_pressed:
        settings = replace(settings, symmetric=False)
    return settings
