"""Quantizes a network from Python, keeps its most sensitive layers in float, and judges it.

python examples/quantize_network.py model.onnx pictures/ model.int8.onnx
"""

import sys
from pathlib import Path

import compress
from artifacts.onnx_file import load_onnx, save_onnx
from compress.quantize.settings import QuantizeSettings
from framefit.network_clock import NetworkClock


def main(model: Path, pictures: Path, out: Path) -> None:
    """Writes the INT8 network and prints what it lost and what it gained."""
    settings = QuantizeSettings(target="openvino", prefer="balanced")
    result = compress.quantize(load_onnx(model), pictures, settings, clock=NetworkClock("openvino"))
    save_onnx(result.model, out, metadata={})
    for name, sqnr_db in result.outputs_db.items():
        sys.stdout.write(f"{name}: {sqnr_db:.1f} dB on the calibration pictures\n")
    if result.precision is not None:
        choice = result.precision
        sys.stdout.write(f"{choice.float_ms:.2f} ms -> {choice.chosen.latency_ms:.2f} ms\n")
        for node, reason in choice.float_nodes.items():
            sys.stdout.write(f"{node} stays in float: {reason}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
