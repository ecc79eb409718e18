"""Writes docs/architectures.md from the rows of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.architectures.child import RATIO, SAMPLES
from benchmarks.marked import table_lines
from framefit.target_check import NOTICEABLE_DB

SLOWER = 1.02
"""A ratio above it is no noise."""

_LEAD = """# Architectures of other packages

For whoever asks whether a network goes through framefit that was built by a package which knows
nothing of it. What stops a network is at the end.

Written by `make bench-architectures`: {count} networks as other packages build them, with random
weights (those of `transformers` with few layers of each kind) and batch statistics of drawn
pictures. Each is exported, quantized from Python with {samples} samples and the defaults for
OpenVINO, run there, and pruned by {ratio:.0%} of the channels that can be removed.

* **INT8**: layers with integers; **in float**: those that could have them, and were faster or far
  more accurate without.
* **quality**: SQNR of OpenVINO's outputs against the float network's on those samples, dB, of the
  worst output. With random weights it says that nothing is broken, not how good a trained network
  gets.
* **ms**: float, then INT8, on OpenVINO.
* **departs**: outputs that OpenVINO computes more than {noticeable:.0f} dB worse than the file says
  (by onnxruntime without optimizations).
* **MACs**: the share of the multiplications that the pruned network has. It was proven to compute
  what the original does with those channels zeroed.
"""


def render(rows: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> str:
    """Returns the page.

    Args:
        rows: what `measure_architecture` gave of each network, those of a package in a row.
        facts: `machine`, `versions`, `packages` (with their versions), `left` (names of what was
            not run).
    """
    lead = _LEAD.format(count=len(rows), samples=SAMPLES, ratio=RATIO, noticeable=NOTICEABLE_DB)
    dates = ", ".join(sorted({row["date"] for row in rows}))
    lines = [
        lead,
        f"{dates}; {facts['machine']}; {facts['versions']}; {facts['packages']}.",
        "",
        *_summarize(rows),
        *([f"Not run: {', '.join(facts['left'])}."] if facts["left"] else []),
    ]
    for package in dict.fromkeys(row["package"] for row in rows):
        own = [row for row in rows if row["package"] == package]
        lines += ["", f"## {package}", "", *_table(own)]
    stopped = [row for row in rows if "problem" in row]
    if stopped:
        lines += ["", "## What stops the others", ""]
        lines += [f"* {row['name']} ({row['package']}): {_reason(row)}" for row in stopped]
    return "\n".join([*lines, ""])


def _summarize(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    passed = [row for row in rows if "problem" not in row]
    slower = [row["name"] for row in rows if _ratio(row) > SLOWER]
    departing = [row["name"] for row in rows if row.get("said_db")]
    return [
        f"**{len(passed)} of {len(rows)} pass every stage.**",
        f"Slower than float on OpenVINO by more than {SLOWER - 1:.0%}: {_name(slower)}.",
        f"With an output that OpenVINO computes otherwise: {_name(departing)}.",
    ]


def _reason(row: Mapping[str, Any]) -> str:
    """Returns what stopped a network, without what would have been expected."""
    return str(row["problem"]).partition("; expected ")[0]


def _name(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def _ratio(row: Mapping[str, Any]) -> float:
    """Returns the latency of the quantized network as a share of the float one's; 0 if unknown."""
    return float(row["int8_ms"] / row["float_ms"]) if "float_ms" in row else 0.0


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    head = ("network", "INT8", "in float", "quality", "ms", "departs", "MACs")
    return table_lines(head, (_cells(row) for row in rows))


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    outputs_db = row.get("outputs_db")
    return (
        row["name"],
        str(row.get("layers", "-")),
        str(row.get("stays_float", "-")),
        f"{min(outputs_db.values()):.1f}" if outputs_db else "-",
        f"{row['float_ms']:.2f}, {row['int8_ms']:.2f}" if "float_ms" in row else "-",
        str(len(row["said_db"])) if "said_db" in row else "-",
        f"{row['macs'][1] / row['macs'][0]:.2f}" if "macs" in row else "-",
    )
