"""The section of docs/benchmarks.md about networks that framefit was not tuned to."""

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.marked import table_lines
from benchmarks.peers.makers import OURS
from benchmarks.peers.page import SECONDS, case_heading, seconds_cell, waited_s
from benchmarks.peers.standing import BETTER_DB, CPU_TIME, SLOWER_ALLOWED, judge_outputs

COST_OF = (f"{OURS} openvino", f"{OURS} openvino timed")
"""The settings whose seconds are compared: without timing on the target, as the peers, and with."""
_SHOWN = ("timed", "balanced", "quality")


def section_name(figures: Mapping[str, Any]) -> str:
    """Returns the name of the section: processors that overflow have one of their own."""
    return "unseen-without-vnni" if figures.get("overflows") else "unseen"


def render(figures: Mapping[str, Any]) -> list[str]:
    """Returns the section's lines."""
    where = ", without VNNI" if figures.get("overflows") else ""
    counted = (
        "what OpenVINO runs; what the peers' files say, no kernel computes on this processor"
        if figures.get("overflows")
        else "of a peer's file the better of what it says and what OpenVINO runs, of framefit's "
        "the worse"
    )
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    lines = [
        f"## Beside the peers, on networks that nothing was tuned to{where}",
        "",
        "Written by `make bench-unseen`, which "
        "trains these networks for a minute each and judges as `make bench-quantize` does (said "
        "and run, times in turns, verdicts). *dB* is the mean over the outputs, *worst* the least "
        "of them, of each output's lower figure (mean over pictures or pooled): "
        f"{counted}. {SECONDS}",
        "",
        f"{figures['date']}; {figures['machine']}; {versions}.",
        "",
        *summary_lines(figures["cases"]),
        "",
    ]
    for name, case in figures["cases"].items():
        lines += _case_lines(name, case)
    return lines


def summarize_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a case comes down to.

    Returns:
        {"standing", "judged": counts of the peers' files; "best_peer": the name of the best by dB;
        "cost": of framefit's settings, a dictionary from setting to seconds as multiples of the
        fastest peer's, with and without imports;
        "slower": framefit's files for OpenVINO that take longer than float}.
    """
    made = {name: row for name, row in case["files"].items() if "failure" not in row}
    peers = {name: row for name, row in made.items() if not name.startswith(OURS)}
    float_time = case["float_cpu_ms" if case["judged_by"] == CPU_TIME else "float_ms"]
    return {
        "standing": sum(not verdict["beaten_by"] for verdict in case["standing"].values()),
        "judged": len(case["standing"]),
        "best_peer": max(peers, key=lambda name: judged_db(case, name)[0], default=None),
        "cost": {
            name: _compare_cost(made[name], peers) for name in COST_OF if name in made and peers
        },
        "slower": [
            name
            for name, row in made.items()
            if name.startswith(OURS) and row[case["judged_by"]] > float_time
        ],
    }


def judged_db(case: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Returns the mean over the outputs of one of a case's files and the least of them, dB."""
    outputs = judge_outputs(case["files"][name], is_ours=name.startswith(OURS), kinds=case["kinds"])
    least = [min(figures.values()) for figures in outputs.values()]
    return sum(least) / len(least), min(least)


def summary_lines(cases: Mapping[str, Any]) -> list[str]:
    """Returns a table with a row for each case; those of `benchmarks.peers` have no plan."""
    head = (
        "network", "float ms", "best peer, dB / ms", *(f"`{kind}`" for kind in _SHOWN),
        "peers' files standing", "seconds, of the fastest peer's (without imports); `timed`",
        "plan",
    )  # fmt: skip
    rows = []
    for name, case in cases.items():
        files, summary = case["files"], summarize_case(case)
        best = summary["best_peer"]
        rows.append(
            [
                name,
                f"{case['float_ms']:.2f}",
                f"{best}: {_figures(case, best)}" if best else "-",
                *(
                    _figures(case, file) if file in files else "-"
                    for file in (f"{OURS} openvino {kind}" for kind in _SHOWN)
                ),
                f"{summary['standing']} of {summary['judged']}",
                _cost_cell(summary["cost"]),
                _plan_cell(case["plan"]) if "plan" in case else "-",
            ]
        )
    return table_lines(head, rows)


def _case_lines(name: str, case: Mapping[str, Any]) -> list[str]:
    lines = [
        *case_heading(name, case),
        *table_lines(
            ("file", "dB", "worst", "ms", "CPU ms", "seconds", "verdict"),
            (_file_cells(file, row, case) for file, row in case["files"].items()),
        ),
        "",
    ]
    summary = summarize_case(case)
    lines.append(
        f"Of {summary['judged']} files of the peers, {summary['standing']} are left standing; one "
        f"falls to a file of framefit that is at most {SLOWER_ALLOWED - 1:.0%} slower, "
        f"{BETTER_DB:g} dB better over the outputs, and worse on none."
    )
    if case["judged_by"] == CPU_TIME:
        lines.append("The machine had other work: fast is here what takes little processor time.")
    if summary["slower"]:
        lines.append(f"Slower than float: {', '.join(summary['slower'])}.")
    return [*lines, ""]


def _file_cells(file: str, row: Mapping[str, Any], case: Mapping[str, Any]) -> Iterable[str]:
    if "failure" in row:
        return (file, "", "", "", "", "", f"failed: {row['failure'].replace('|', '/')}")
    mean_db, worst_db = judged_db(case, file)
    ratio = case["float_ms"] / row["min_ms"]
    return (
        file,
        f"{mean_db:.1f}",
        f"{worst_db:.1f}",
        f"{row['min_ms']:.2f} ({ratio:.2f}x)",
        f"{row['cpu_ms']:.2f}",
        seconds_cell(row),
        _verdict_cell(case["standing"].get(file)),
    )


def _compare_cost(
    own: Mapping[str, float], peers: Mapping[str, Mapping[str, float]]
) -> tuple[float, float]:
    waited = waited_s(own) / min(map(waited_s, peers.values()))
    return waited, own["seconds"] / min(row["seconds"] for row in peers.values())


def _cost_cell(cost: Mapping[str, tuple[float, float]]) -> str:
    cells = (f"{waited:.2f} ({worked:.2f})" for waited, worked in cost.values())
    return "; ".join(cells) or "-"


def _verdict_cell(verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return ""
    figures = f"{verdict['gain_db']:+.1f} dB at {verdict['time_ratio']:.2f} times its latency"
    if verdict["beaten_by"]:
        return f"beaten by *{verdict['beaten_by']}*: {figures}"
    return (
        f"**stands**; closest is *{verdict['closest']}*: {figures}, "
        f"worst output {verdict['worst_output_db']:+.1f} dB"
    )


def _figures(case: Mapping[str, Any], name: str) -> str:
    row = case["files"][name]
    return "failed" if "failure" in row else f"{judged_db(case, name)[0]:.1f} / {row['min_ms']:.2f}"


def _plan_cell(plan: Mapping[str, Any]) -> str:
    if "failure" in plan:
        return f"failed: {plan['failure'].replace('|', '/')}"
    return "built" if plan["is_buildable"] else "built, but lint refuses it"
