"""`make bench`: measures everything in one run and writes its section of docs/benchmarks.md."""

import json
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from artifacts.atomic import write_json, write_text
from benchmarks.demo_network import measure_demo, measure_help, measure_quantize
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section
from benchmarks.real_networks import measure_real_networks

PAGE = Path("docs/benchmarks.md")
RAW = Path("out/bench/figures.json")
TOOLS = ("framefit", "openvino", "onnxruntime", "torch", "tensorrt-rtx")


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    figures = {
        "date": date.today().isoformat(),
        "machine": describe_machine(),
        "versions": {name: version(name) for name in TOOLS},
        "demo": measure_demo(),
        "quantize": measure_quantize(),
        "help_s": measure_help(),
        "real": measure_real_networks(),
    }
    write_json(RAW, figures)
    known = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(known, "bench", render(figures)))
    print(json.dumps({"page": str(PAGE), "raw": str(RAW)}))


def render(figures: dict[str, Any]) -> list[str]:
    """Returns the section's lines."""
    versions = ", ".join(f"{name} {value}" for name, value in figures["versions"].items())
    return [
        "Written by `make bench`, which measures this section in one run. Speeds are compared "
        "only inside that run, as ratios; the absolute figures are those of its machine.",
        "",
        f"{figures['date']}; {figures['machine']}; {versions}.",
        "",
        *_demo_lines(figures["demo"]),
        *_cost_lines(figures),
        *_real_lines(figures["real"]),
    ]


def _demo_lines(report: dict[str, Any]) -> list[str]:
    before, after = report["variants"]
    speed = before["network_ms"]["p50"] / after["network_ms"]["p50"]
    lines = [
        "## The demo network on OpenVINO",
        "",
        "| | float | INT8 | goal |",
        "|---|---|---|---|",
        f"| network P50, ms | {before['network_ms']['p50']:.1f} | {after['network_ms']['p50']:.1f} "
        f"({speed:.2f}x) | at least 2.0x |",
        f"| frame P99, ms | {_ms(before['frame_ms']['p99'])} | {_ms(after['frame_ms']['p99'])} | "
        "33 paced at 30 Hz |",
        f"| frames missed | {before['frame_ms']['misses']} of {before['frame_ms']['n']} | "
        f"{after['frame_ms']['misses']} of {after['frame_ms']['n']} | |",
        f"| file, MB | {before['size_bytes'] / 1e6:.2f} | {after['size_bytes'] / 1e6:.2f} "
        f"({before['size_bytes'] / after['size_bytes']:.2f}x) | at least 3.5x smaller |",
    ]
    for name, head in before["heads"].items():
        value = after["heads"][name]["value"]
        lines.append(
            f"| {name} {head['metric']} | {head['value']:.4f} | {value:.4f} "
            f"({value - head['value']:+.4f}) | 0.01 worse at most |"
        )
    lines += ["", f"Verdict: **{report['verdict']}**. Gates of the INT8 variant:", ""]
    lines += [f"* {gate['name']}: {gate['verdict']}: {gate['detail']}" for gate in report["gates"]]
    return [*lines, "", *(f"{note}" for note in report["notes"]), ""]


def _cost_lines(figures: dict[str, Any]) -> list[str]:
    cost = figures["quantize"]
    return [
        "## Cost",
        "",
        "| | measured | goal |",
        "|---|---|---|",
        f"| `compress quantize`, demo network, 32 pictures | {cost['seconds']:.1f} s | 60 s |",
        f"| its peak memory | {cost['peak_gib']:.2f} GiB | 4 GB |",
        f"| `framefit --help` | {figures['help_s']:.2f} s | 0.5 s |",
        "",
    ]


def _real_lines(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["## Trained networks of others", "", "Not measured: ../shared/real is absent.", ""]
    lines = [
        "## Trained networks of others",
        "",
        "SQNR on pictures that were not used for calibration: the mean over pictures, then all "
        "pooled, in dB. Times are OpenVINO's P50 in ms, float and INT8 in turn.",
        "",
        "| network | placement | SQNR mean (pooled) | float ms | INT8 ms | smaller | plan for |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        quality = "; ".join(
            f"{name} {value['sqnr_mean_db']:.1f} ({value['sqnr_db']:.1f})"
            for name, value in row["outputs"].items()
        )
        lines.append(
            f"| {row['network']} | {row['target']} | {quality} | {row['float_ms']:.2f} | "
            f"{row['int8_ms']:.2f} ({row['float_ms'] / row['int8_ms']:.2f}x) | "
            f"{row['smaller']:.2f}x | {row['plans']} |"
        )
    splits = {row["network"]: row["split"] for row in rows}
    return [*lines, "", *(f"* {name}: {split}." for name, split in splits.items()), ""]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    main()
