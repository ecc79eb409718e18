"""What equalizing the channels of depthwise layers brings.

`python -m benchmarks.depthwise_ranges [NETWORK ...]` writes its table into docs/quantization.md.

Three quantizers on the same pictures: equalization that goes as far for depthwise readers as for
all others, one that goes all the way for them, and the product, which can follow an activation
that no factor passes, in addition. Without names all networks are measured that are there.
"""

import sys
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import load_onnx
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section
from benchmarks.package_networks import PACKAGE_NETWORKS
from benchmarks.quantizer_choices import PAGE, RAW, make_settings, open_splits
from benchmarks.real_networks import REAL
from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.repairs import channel_scales, equalization
from compress.quantize.settings import QuantizeSettings

TARGETS = ("tensorrt", "openvino")
SPLITS = ("U1", "U2", "F1", "F3")
VARIANTS: dict[str, tuple[Any, float]] = {
    "as far as others": (equalization.MODERATE, 0.0),
    "all the way": (equalization.DEPTHWISE, 0.0),
    "and with products (the default)": (equalization.DEPTHWISE, channel_scales.MOST_ERROR_LEFT),
}
"""How far factors go where all readers are depthwise, and how much error a product may leave."""


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    rows = [
        {"network": name, "target": target, **_measure(*split, target)}
        for name, split in _open_networks().items()
        if name in (sys.argv[1:] or [name])
        for target in TARGETS
    ]
    write_json(RAW.with_name("depthwise_ranges.json"), rows)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, "depthwise", _render(rows)))


def _open_networks() -> dict[str, tuple[Any, Any, Any]]:
    networks = {}
    if REAL.is_dir():
        splits = open_splits()
        networks |= {name: splits[name] for name in SPLITS}
    for network in PACKAGE_NETWORKS:
        if network.path.exists():
            model = load_onnx(network.path, input_shapes={"": network.shape})
            networks[network.name] = (model, *network.samples(model))
    return networks


def _measure(model: Any, calibration: Any, held_out: Any, target: str) -> dict[str, list[float]]:
    found = {}
    for name, (reach, error_left) in VARIANTS.items():
        with (
            patch.object(equalization, "DEPTHWISE", reach),
            patch.object(channel_scales, "MOST_ERROR_LEFT", error_left),
        ):
            quality = _judge(model, calibration, held_out, make_settings(target=target))
        found[name] = quality.mean(axis=0).tolist()
    return found


def _judge(
    model: Any, calibration: Any, held_out: Any, settings: QuantizeSettings
) -> NDArray[np.float64]:
    """Returns [outputs, 2], the SQNR in dB: the mean over pictures, and all pictures pooled."""
    quantized = quantize_model(model, calibration, settings).model
    outputs = compare_models(model, quantized, held_out)["outputs"]
    return np.array([(value["sqnr_mean_db"], value["sqnr_db"]) for value in outputs.values()])


def _render(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"SQNR on held-out pictures, mean over outputs (pooled), in dB. Measured in one run on "
        f"{describe_machine()}.",
        "",
        f"| network | placement | {' | '.join(VARIANTS)} |",
        "|---" * (2 + len(VARIANTS)) + "|",
        *(
            f"| {row['network']} | `{row['target']}` | "
            + " | ".join(f"{row[name][0]:.1f} ({row[name][1]:.1f})" for name in VARIANTS)
            + " |"
            for row in rows
        ),
    ]


if __name__ == "__main__":
    main()
