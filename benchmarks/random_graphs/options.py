"""How a random graph is quantized: forms that a measurement would choose, and options of users."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.random_graphs.check import settings_for
from compress.quantize.observers import OBSERVERS
from compress.quantize.placement.integer_sums import INTEGER_SUMS
from compress.quantize.rounding import ROUNDINGS
from compress.quantize.settings import QuantizeSettings

_WEIGHT_GROUPS = (None, 4, 16)
_CORRECTIONS = ("bias_correction", "input_correction", "equalization", "centering")


def plain_settings(seed: int, target: str, weights: str) -> Iterator[QuantizeSettings]:
    """Yields the defaults, and the same without corrections.

    A bias that a correction adds keeps OpenVINO from moving a layer's rescaling.
    """
    del seed
    settings = settings_for(QuantizeSettings(weights=weights), target)
    yield settings
    yield replace(settings, equalization=False, bias_correction=False)


def form_settings(seed: int, target: str, weights: str) -> Iterator[QuantizeSettings]:
    """Yields one of the forms of which else a measurement on the target chooses."""
    rng = np.random.default_rng(seed)
    base = settings_for(QuantizeSettings(weights=weights, equalization=False), target)
    yield replace(base, bias_correction=_flip(rng), **_draw_form(rng, base))


def any_settings(seed: int, target: str, weights: str) -> Iterator[QuantizeSettings]:
    """Yields a form with any observer, rounding, corrections, and widths of the integers.

    Beside INT4, layers in INT8 overflow without VNNI in files for TensorRT.
    """
    rng = np.random.default_rng(seed)
    base = settings_for(QuantizeSettings(weights=weights), target)
    options = _draw_form(rng, base) | {name: _flip(rng) for name in _CORRECTIONS}
    options["observer"] = OBSERVERS[str(rng.choice([*OBSERVERS]))]()
    options["rounding"] = ROUNDINGS[str(rng.choice([*ROUNDINGS]))]()
    options["activations"] = str(rng.choice(["int8", "int8", "int16", "float"]))
    if rng.random() < 0.4 and not (target == "tensorrt" and base.is_for_16_bits):
        group = _WEIGHT_GROUPS[rng.integers(len(_WEIGHT_GROUPS))]
        options |= {"weights": "int4", "weight_group": group}
        options["int4_share"] = [None, 1.0][rng.integers(2)]
    yield replace(base, **options)


def _draw_form(rng: np.random.Generator, base: QuantizeSettings) -> dict[str, Any]:
    """Returns a form for OpenVINO; no products of activations where they would overflow."""
    if base.target != "openvino":
        return {}
    names = ("symmetric", "spares_padded", "swish_by_tanh", "integer_attention", "trunk_sums")
    form: dict[str, Any] = {name: _flip(rng) for name in names}
    form["integer_attention"] &= not base.is_for_16_bits
    return form | {"integer_sums": str(rng.choice(INTEGER_SUMS))}


def _flip(rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.5)


SETTINGS = {"plain": plain_settings, "forms": form_settings, "any": any_settings}
