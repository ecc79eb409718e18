"""What equalizing the channels of depthwise layers brings.

`python -m benchmarks.depthwise_ranges [NETWORK ...]` writes its table into docs/experiments.md.

Three quantizers on the same pictures: equalization that goes as far for depthwise readers as for
all others, one that goes all the way for them, and the product, which can follow an activation
that no factor passes, in addition. Without names all networks are measured that are there; those of
../shared have fewer calibration pictures than it takes.
"""

import sys
from typing import Any
from unittest.mock import patch

import numpy as np

from artifacts.atomic import write_json, write_text
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.package_networks import PackageNetwork, fetched_networks
from benchmarks.quantizer_choices import PAGE, RAW, judge
from compress.quantize.repairs import channel_scales, equalization
from compress.quantize.settings import QuantizeSettings

TARGETS = ("tensorrt", "openvino")
VARIANTS: dict[str, tuple[Any, float]] = {
    "as far as others": (equalization.MODERATE, 0.0),
    "all the way": (equalization.DEPTHWISE, 0.0),
    "and with products (the default)": (equalization.DEPTHWISE, channel_scales.MOST_ERROR_LEFT),
}
"""How far factors go where all readers are depthwise, and how much error a product may leave."""


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    rows = [
        {"network": network.name, "target": target, **_measure(network, target)}
        for network in fetched_networks(sys.argv[1:])
        for target in TARGETS
    ]
    write_json(RAW.with_name("depthwise_ranges.json"), rows)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, "depthwise", _render(rows)))


def _measure(network: PackageNetwork, target: str) -> dict[str, list[float]]:
    model = network.load()
    calibration, held_out = network.samples(model)
    found = {}
    for name, (reach, error_left) in VARIANTS.items():
        with (
            patch.object(equalization, "DEPTHWISE", reach),
            patch.object(channel_scales, "MOST_ERROR_LEFT", error_left),
        ):
            quality = judge(model, calibration, held_out, QuantizeSettings(target=target))
        found[name] = np.mean(quality, axis=0).tolist()
    return found


def _render(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"SQNR on held-out pictures, mean over outputs (pooled), in dB. Measured in one run on "
        f"{describe_machine()}.",
        "",
        *table_lines(
            ("network", "placement", *VARIANTS),
            (
                (
                    row["network"],
                    f"`{row['target']}`",
                    *(f"{row[name][0]:.1f} ({row[name][1]:.1f})" for name in VARIANTS),
                )
                for row in rows
            ),
        ),
    ]


if __name__ == "__main__":
    main()
