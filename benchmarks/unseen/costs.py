"""What quantizing these networks takes, in seconds and memory: a section of the page.

`python -m benchmarks.unseen.costs [NAME...]`, after `make bench-unseen` has made the peers' virtual
environment. Each tool quantizes in a process of its own, in turn, and each as often as `ROUNDS`
says; the shortest counts, imports included.
"""

import argparse
import json
from datetime import date
from typing import Any

from artifacts.atomic import write_json, write_text
from benchmarks.chosen_names import add_names
from benchmarks.machine import OtherProcesses, describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.peers.cases import Case, read_feeds
from benchmarks.peers.makers import OURS, list_ours, list_peers, make
from benchmarks.peers.measure import case_files, read_versions
from benchmarks.unseen.__main__ import PAGE, RAW, parse_networks
from benchmarks.unseen.networks import NETWORKS
from benchmarks.unseen.page import COST_OF
from benchmarks.unseen.trained import OUT, STEPS, list_cases

ROUNDS = 2
QUICK_PEERS = (
    "onnxruntime asymmetric minmax",
    "Model Optimizer default",
    "Model Optimizer max",
    "NNCF default",
)
"""Each tool's default, and what is faster."""
_COLUMNS = {name: name for name in QUICK_PEERS} | dict(
    zip(COST_OF, (f"{OURS}, not timed", f"{OURS}, timed"), strict=True)
)
"""The settings of the table, each with its title."""


def main() -> None:
    """Measures the networks that are named, or all; writes the raw figures and the section."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unseen.costs", description=__doc__)
    add_names(parser, NETWORKS, "the others leave the table")
    names = parse_networks(parser).names
    with OtherProcesses() as others:
        cases = [
            _measure(case)
            for case in list_cases(OUT / "weights", STEPS)
            if not names or case.name in names
        ]
    figures = {
        "date": date.today().isoformat(),
        "machine": describe_machine(),
        "versions": read_versions(),
        "others": others.share,
        "cases": cases,
    }
    raw = RAW.with_name("unseen_costs.json")
    write_json(raw, figures)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, "unseen-costs", _render(figures)))
    print(json.dumps({"page": str(PAGE), "raw": str(raw)}))


def _measure(case: Case) -> dict[str, Any]:
    """Returns {"name", "seconds", "peak_mib": each by tool and setting, without what failed}."""
    files = case_files(case, OUT)
    if not files.calibration.exists():
        files.folder.mkdir(parents=True, exist_ok=True)
        case.write(files)
    count = len(read_feeds(files.calibration))
    makers = [item for item in list_peers() if item.name in QUICK_PEERS]
    makers += [item for item in list_ours() if item.name in COST_OF]
    costs: dict[str, list[dict[str, float]]] = {maker.name: [] for maker in makers}
    for _ in range(ROUNDS):
        for maker in makers:
            print(f"{case.name}: {maker.name}", flush=True)
            cost = make(maker, files, count)
            if "failure" not in cost:
                costs[maker.name].append(cost)
    made = {name: rows for name, rows in costs.items() if rows}
    return {
        "name": case.name,
        "seconds": {
            name: min(row["seconds"] + row["import_s"] for row in rows)
            for name, rows in made.items()
        },
        "peak_mib": {name: min(row["peak_mib"] for row in rows) for name, rows in made.items()},
    }


def _render(figures: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    return [
        "## What quantizing these networks takes",
        "",
        "Written by `python -m benchmarks.unseen.costs`. Seconds of a process from start to end, "
        f"the shorter of {ROUNDS} in turn, and its peak memory in MiB. Framefit's are for "
        "OpenVINO: without timing, as the peers, and with it (the default); in brackets as "
        "multiples of the fastest peer's.",
        "",
        f"{figures['date']}; {figures['machine']}; {versions}. Other processes took "
        f"{figures['others']:.0%} of the processors' time meanwhile.",
        "",
        *table_lines(
            ("network", *_COLUMNS.values()),
            (
                (case["name"], *(_cell(case, name) for name in _COLUMNS))
                for case in figures["cases"]
            ),
        ),
    ]


def _cell(case: dict[str, Any], name: str) -> str:
    if name not in case["seconds"]:
        return "failed"
    seconds = case["seconds"][name]
    fastest = min(case["seconds"][peer] for peer in QUICK_PEERS if peer in case["seconds"])
    share = f" ({seconds / fastest:.2f}x)" if name in COST_OF else ""
    return f"{seconds:.1f}{share}, {case['peak_mib'][name]:.0f}"


if __name__ == "__main__":
    main()
