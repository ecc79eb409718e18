"""`python -m benchmarks.zoo`: runs the zoo and writes docs/zoo.md."""

import argparse
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from artifacts.atomic import write_json, write_text
from benchmarks.machine import describe_machine
from benchmarks.own_processes import read_resumed
from benchmarks.zoo.child import PARITY_MARGIN_DB, SAMPLES, TURNS
from benchmarks.zoo.networks import ZOO
from benchmarks.zoo.page import render
from benchmarks.zoo.run import TIMEOUT_S, run_zoo

PAGE = Path("docs/zoo.md")
RAW = Path("out/zoo/rows.json")
TOOLS = ("framefit", "timm", "torch", "openvino", "onnxruntime", "tensorrt-rtx")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is asked for, keeps the raw rows, and writes the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="networks; default: all")
    parser.add_argument("--targets", nargs="+", default=["tensorrt", "openvino"])
    parser.add_argument("--workers", type=int, default=1, help="processes at a time")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds per network")
    parser.add_argument("--resume", action="store_true", help="keep the rows that have passed")
    parser.add_argument("--disturbed", default="", help="a sentence on the state of the machine")
    options = parser.parse_args(arguments)
    rows = read_resumed(RAW, [item.name for item in ZOO]) if options.resume else {}
    wanted = [item for item in ZOO if not options.names or item.name in options.names]

    def tell(row: dict[str, Any]) -> None:
        rows[row["name"]] = row
        write_json(RAW, rows)
        print(f"{row['name']}: {row.get('problem') or row['seconds']}", flush=True)

    run_zoo(
        [item for item in wanted if item.name not in rows],
        options.targets,
        workers=options.workers,
        timeout_s=options.timeout,
        tell=tell,
    )
    facts = {
        "targets": options.targets,
        "samples": SAMPLES,
        "turns": TURNS,
        "parity_margin": PARITY_MARGIN_DB,
        "disturbed": options.disturbed,
        "left": [item.name for item in ZOO if item.name not in rows],
        "date": date.today().isoformat(),
        "machine": describe_machine(),
        "versions": ", ".join(f"{name} {version(name)}" for name in TOOLS),
    }
    write_text(PAGE, render([rows[item.name] for item in ZOO if item.name in rows], facts))
    print(f"{PAGE} written")


if __name__ == "__main__":
    main()
