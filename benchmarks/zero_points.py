"""What zero points cost on OpenVINO, with and without its AMX kernels; a table of the page.

`python -m benchmarks.zero_points [NAME...]`, after `python -m benchmarks.package_networks`.

Each network is quantized for OpenVINO with zero points, without them where padded Convs read
("spared"), and without any. The files are timed in turn with float, once with the kernels that
OpenVINO takes here and, where these are for AMX, once without. SQNR is that of each output on
held-out pictures, and of the parts of one that joins unlike tensors.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import save_onnx
from benchmarks.machine import HAS_AMX, OtherProcesses, describe_machine, name_section
from benchmarks.marked import replace_section, table_lines
from benchmarks.package_networks import PackageNetwork, fetched_networks
from benchmarks.peers.judge import measure_latency
from benchmarks.quantizer_choices import PAGE, RAW
from compress.head_judge import HeadJudge
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings

SCHEMES = {
    "with": QuantizeSettings(target="openvino", symmetric=False),
    "spared": QuantizeSettings(target="openvino", symmetric=False, spares_padded=True),
    "without": QuantizeSettings(target="openvino", symmetric=True),
}
KERNELS: dict[str, dict[str, str]] = {"as they are": {}}
if HAS_AMX:
    KERNELS["no AMX"] = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}
SECTION = name_section("zero_points")
ROUNDS = 100


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    with OtherProcesses() as others:
        rows = [_measure(network) for network in fetched_networks(sys.argv[1:])]
    write_json(RAW.with_name(f"{SECTION}.json"), rows)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, SECTION, _render(rows, others.share)))


def _measure(network: PackageNetwork) -> dict[str, Any]:
    model = network.load()
    calibration, held_out = network.samples(model)
    judge = HeadJudge.of_outputs(model, held_out)
    quality = {}
    with TemporaryDirectory() as folder:
        files = {"float": save_onnx(model, Path(folder, "float.onnx"), metadata={})}
        for name, settings in SCHEMES.items():
            quantized = quantize_model(model, calibration, settings).model
            quality[name] = judge.measure(quantized)
            files[name] = save_onnx(quantized, Path(folder, f"{name}.onnx"), metadata={})
        times = {}
        for kernels, variables in KERNELS.items():
            with patch.dict(os.environ, variables):
                times[kernels] = measure_latency(files, ROUNDS)
    return {"network": network.name, "times": times, "sqnr_db": quality}


def _render(rows: list[dict[str, Any]], others: float) -> list[str]:
    return [
        f"Shortest inference in ms: float, with zero points, without them where padded Convs read, "
        f"without any. SQNR in dB, pooled, of the three. Measured in one run on "
        f"{describe_machine()}; other processes took {others:.0%} of the processors' time.",
        "",
        *table_lines(
            ("network", *(f"OpenVINO, {name}" for name in KERNELS), "SQNR"),
            (
                (
                    row["network"],
                    *(_show_times(row["times"][name]) for name in KERNELS),
                    _show_quality(row["sqnr_db"]),
                )
                for row in rows
            ),
        ),
    ]


def _show_times(times: dict[str, Any]) -> str:
    return ", ".join(f"{item['min_ms']:.2f}" for item in times.values())


def _show_quality(sqnr_db: dict[str, dict[str, float]]) -> str:
    return "; ".join(
        f"{head} " + ", ".join(f"{sqnr_db[name][head]:.1f}" for name in SCHEMES)
        for head in sqnr_db["with"]
    )


if __name__ == "__main__":
    main()
