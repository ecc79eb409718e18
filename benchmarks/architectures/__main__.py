"""`make bench-architectures`: networks of other packages; writes docs/architectures.md."""

import argparse
import json
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from artifacts.atomic import write_json, write_text
from benchmarks.architectures.child import measure_architecture
from benchmarks.architectures.other_networks import list_others
from benchmarks.architectures.page import render
from benchmarks.architectures.transformers_networks import list_transformers
from benchmarks.machine import describe_machine
from benchmarks.own_processes import read_resumed, read_rows, run_each

PAGE = Path("docs/architectures.md")
RAW = Path("out/architectures/rows.json")
TIMEOUT_S = 300.0
TOOLS = ("framefit", "torch", "openvino", "onnxruntime")
PRELOADED = ("torch", "onnxruntime", "framefit")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is asked for, keeps the raw rows, and writes the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.architectures", description=__doc__)
    parser.add_argument("names", nargs="*", help="networks or packages; default: all")
    parser.add_argument("--resume", action="store_true", help="keep the rows that have passed")
    parser.add_argument("--page", action="store_true", help="only write the page, of what has run")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds per network")
    options = parser.parse_args(arguments)
    known = [*list_transformers(), *list_others()]
    wanted = [
        item
        for item in known
        if not options.names or {item.name, item.package} & set(options.names)
    ]
    rows = read_rows(RAW) if options.page else {}
    if options.resume:
        rows = read_resumed(RAW, [item.name for item in wanted])

    def tell(row: dict[str, Any]) -> None:
        rows[row["name"]] = row | {"date": date.today().isoformat()}
        write_json(RAW, rows)
        print(f"{row['name']}: {row.get('problem') or row['seconds']}", flush=True)

    run_each(
        measure_architecture,
        [item for item in wanted if item.name not in rows and not options.page],
        timeout_s=options.timeout,
        preloaded=PRELOADED,
        tell=tell,
    )
    packages = dict.fromkeys(item.package for item in wanted)
    facts = {
        "machine": describe_machine(),
        "versions": ", ".join(f"{name} {version(name)}" for name in TOOLS),
        "packages": ", ".join(f"{name} {version(name)}" for name in packages),
        "left": [item.name for item in wanted if item.name not in rows],
    }
    ran = [{**rows[item.name], "package": item.package} for item in wanted if item.name in rows]
    write_text(PAGE, render(ran, facts))
    print(json.dumps({"page": str(PAGE), "raw": str(RAW)}))


if __name__ == "__main__":
    main()
