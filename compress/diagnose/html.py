"""The diagnosis as one self-contained page, readable without a network, a mouse or colours."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compress.diagnose.report import Diagnosis, LayerDiagnosis, WeightFinding
from compress.sqnr import format_db

_HERE = Path(__file__).parent
STRIP_CELLS = 64
GOOD_DB, BAD_DB = 40.0, 5.0
"""The ends of the colour scale of channels' SQNR."""
NOTED_CLIPPING = 0.1
"""Clipping is remarkable from this share of a tensor's rounding error on."""
HEAT_DECADES = 2.5
"""The colour scale of the heat map: from the largest noise down so many powers of ten."""


def render_html(diagnosis: Diagnosis, title: str) -> str:
    """Returns the page; every text is escaped by jinja2, every drawing is made of numbers.

    Args:
        diagnosis: what to show.
        title: the network's name.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(db=format_db, share=format_share)
    page: str = environment.get_template("diagnosis.html.j2").render(
        diagnosis=diagnosis,
        title=title,
        style=Markup((_HERE / "diagnosis.css").read_text(encoding="utf-8")),
        rows=_heat_rows(diagnosis),
        layers=[_layer_view(layer) for layer in diagnosis.by_share],
        recommended=diagnosis.recommended,
        largest_gain=max((abs(item.gain_db) for item in diagnosis.remedies), default=1.0) or 1.0,
    )
    return page


def format_share(value: float) -> str:
    """Returns a share as a percentage with as many digits as it takes to see it."""
    if value == 0.0:
        return "0 %"
    return f"{value:.0%}".replace("%", " %") if value >= 0.1 else f"{value * 100:.2g} %"


def _heat_rows(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Returns a row per layer, each cell with its dB and how hot it is, 0 to 100."""
    noises = [noise for layer in diagnosis.layers for noise in layer.noise.values()]
    hottest = max(noises, default=0.0)
    return [
        {
            "layer": layer,
            "cells": [
                {
                    "head": head,
                    "db": layer.alone_db[head],
                    "heat": _heat(noise, hottest),
                }
                for head, noise in layer.noise.items()
            ],
        }
        for layer in diagnosis.layers
    ]


def _heat(noise: float, hottest: float) -> int:
    if noise <= 0 or hottest <= 0:
        return 0
    return round(100 * max(0.0, 1 + math.log10(noise / hottest) / HEAT_DECADES))


def _layer_view(layer: LayerDiagnosis) -> dict[str, Any]:
    return {
        "layer": layer,
        "strip": _strip(layer.channel_db),
        "bars": _bars(layer.weight) if layer.weight else [],
        "notes": describe_layer(layer),
    }


def _strip(channel_db: Sequence[float]) -> list[dict[str, Any]]:
    """Returns at most `STRIP_CELLS` cells in channel order, each as bad as its worst channel."""
    count = min(len(channel_db), STRIP_CELLS)
    edges = [index * len(channel_db) // count for index in range(count + 1)] if count else []
    cells = []
    for index in range(count):
        worst = min(channel_db[edges[index] : edges[index + 1]])
        badness = (GOOD_DB - worst) / (GOOD_DB - BAD_DB)
        cells.append({"at": index, "heat": round(100 * min(max(badness, 0.0), 1.0))})
    return cells


def _bars(weight: WeightFinding) -> list[dict[str, float]]:
    """Returns the histogram's bars, heights 0 to 100 of the tallest."""
    tallest = max(weight.histogram, default=0) or 1
    return [
        {"at": index, "height": round(100 * count / tallest, 1)}
        for index, count in enumerate(weight.histogram)
    ]


def describe_layer(layer: LayerDiagnosis) -> list[str]:
    """Returns what is remarkable about a layer, a sentence each."""
    notes = []
    for item in layer.activations:
        if item.clipping_share >= NOTED_CLIPPING:
            notes.append(
                f"{format_share(item.saturated)} of {item.tensor} lies beyond "
                f"{item.represented_low:.3g} … {item.represented_high:.3g} (it reaches "
                f"{item.low:.3g} … {item.high:.3g}) and makes {format_share(item.clipping_share)} "
                "of its rounding error"
            )
        if item.outlier_channels:
            shown = ", ".join(map(str, item.outlier_channels[:5]))
            notes.append(
                f"{item.tensor} has {len(item.outlier_channels)} outlier channels ({shown}), up to "
                f"{item.outlier_ratio:.0f} times the median channel"
            )
    if layer.weight is not None and layer.weight.dead_channels:
        shown = ", ".join(map(str, layer.weight.dead_channels[:5]))
        notes.append(f"{len(layer.weight.dead_channels)} output channels are all zero: {shown}")
    return notes
