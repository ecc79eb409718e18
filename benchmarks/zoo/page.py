"""Writes docs/zoo.md from the rows of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

RUNTIME = "openvino"
TOLERANCE = 0.02
"""A ratio this much above 1 may be noise."""

_LEAD = """# The zoo

For whoever asks whether an architecture goes through export, quantization, lint and builds, and
whether INT8 makes it faster. What stops a network is at the end. Two columns of a kind are for
files of the targets `tensorrt` and `openvino`, both run on OpenVINO.

Written by `python -m benchmarks.zoo`: {count} timm architectures with random weights (batch
normalization settled on pictures), exported with `framefit export onnx`, quantized with {samples}
samples for {targets}, linted for TensorRT-RTX, built with TensorRT-RTX into an INT8 plan for
compute capability 8.9 (not run: there is no GPU), and run on OpenVINO.

* **quality**: SQNR of the quantized outputs on the calibration samples, dB, with the cheapest
  settings (min-max ranges, no repairs). With random weights it says that nothing is broken, not how
  good a trained network gets.
* **parity**: SQNR of OpenVINO's outputs against what the same INT8 file says, dB. More
  than {parity_margin:.0f} dB below the quality counts as a failure: rounding differently may cost
  no more than quantizing does.
* **int8 / float**: OpenVINO's time of the INT8 file as a share of the float file's, by {turns}
  turns of both (`framefit.paired_times`). Below 1 is faster. {disturbed}
* **in float**: quantizable layers that `compress quantize --target openvino` left in float because
  INT8 as a whole was not faster than float when it timed both.
* **lint**: warnings and infos; an error would say that the plan does not build.
"""


def render(rows: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> str:
    """Returns the page.

    Args:
        rows: what `run_zoo` gave.
        facts: `targets`, `samples`, `turns`, `parity_margin`, `disturbed`, `date`, `machine`,
            `versions`, `left` (names that were not run).
    """
    targets = facts["targets"]
    passed = [row for row in rows if "problem" not in row]
    slower = [row["name"] for row in passed if _ratio(row) > 1 + TOLERANCE]
    lead = _LEAD.format(**{**facts, "targets": " and ".join(targets)}, count=len(rows))
    lines = [lead, f"{facts['date']}; {facts['machine']}; {facts['versions']}.", ""]
    lines.append(f"**{len(passed)} of {len(rows)} pass every stage.**")
    if facts["left"]:
        lines.append(f"Not run: {', '.join(facts['left'])}.")
    lines.append(_describe_slower(slower))
    lines += ["", _header(targets), "|" + "---|" * (5 + 3 * len(targets))]
    lines += [_line(row, targets) for row in rows]
    failed = [row for row in rows if "problem" in row]
    if failed:
        lines += ["", "## What stops the others", ""]
        lines += [f"* {row['name']}: {row['problem']}" for row in failed]
    second = [row for row in rows if row.get("exporter_refusals")]
    if second:
        names = ", ".join(row["name"] for row in second)
        lines += ["", f"Exported by the second exporter (TorchScript) only: {names}."]
    return "\n".join([*lines, ""])


def _describe_slower(names: Sequence[str]) -> str:
    if not names:
        return f"No file made for OpenVINO is more than {TOLERANCE:.0%} slower there than float."
    return f"More than {TOLERANCE:.0%} slower than float on OpenVINO: {', '.join(names)}."


def _ratio(row: Mapping[str, Any]) -> float:
    """Returns the time on OpenVINO of the file made for it, as a share of the float file's."""
    times = row["latency_ms"]
    return float(times.get(RUNTIME, 0.0)) / float(times["float"])


def _header(targets: Sequence[str]) -> str:
    columns = [
        f"{what}, {target}" for what in ("quality", "parity", "int8 / float") for target in targets
    ]
    return " | ".join(["| network", "pixels", *columns, "in float", "lint", "plan, MB |"])


def _line(row: Mapping[str, Any], targets: Sequence[str]) -> str:
    cells = [row["name"], str(row["size"])]
    cells += [_number(row.get("quality_db", {}).get(target), "{:.1f}") for target in targets]
    cells += [_number(row.get("parity_db", {}).get(target), "{:.1f}") for target in targets]
    times = row.get("latency_ms", {})
    cells += [
        _number(times[target] / times["float"] if target in times else None, "{:.2f}")
        for target in targets
    ]
    cells.append(str(row.get("stays_float", {}).get(RUNTIME, "-")))
    counts = row["lint"]["counts"] if "lint" in row else None
    cells.append(f"{counts['warning']} w, {counts['info']} i" if counts else "-")
    plan = row.get("plan_bytes")
    cells.append(f"{plan / 1e6:.1f}" if plan else "-")
    return f"| {' | '.join(cells)} |"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
