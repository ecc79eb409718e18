"""`make bench-unseen`: trains, quantizes with every tool, judges, writes the section.

Weights and files are kept in out/unseen, figures in out/bench/unseen.json as each network is done.
"""

import argparse
import json
from datetime import date
from pathlib import Path
from typing import Any

from artifacts.atomic import write_json, write_text
from artifacts.processor import overflows_on_int8, read_flags
from benchmarks.chosen_names import add_names, parse_names
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section
from benchmarks.peers.cases import Case
from benchmarks.peers.makers import OURS, PEERS_PYTHON, list_ours
from benchmarks.peers.measure import (
    add_reuse_options,
    case_files,
    judge_case,
    measure_case,
    read_versions,
)
from benchmarks.peers.standing import counted_kinds
from benchmarks.unseen.networks import NETWORKS
from benchmarks.unseen.page import render, section_name
from benchmarks.unseen.plans import build_plan
from benchmarks.unseen.trained import OUT, STEPS, list_cases

PAGE = Path("docs/benchmarks.md")
RAW = Path("out/bench/unseen.json")
FOR_TENSORRT = f"{OURS} tensorrt"
SELDOM_BEST = (
    "onnxruntime symmetric minmax",
    "onnxruntime asymmetric entropy",
    "Model Optimizer entropy",
    "NNCF mixed",
    f"{OURS} openvino balanced",
    f"{OURS} openvino speed",
)
"""What `--quick` leaves out: settings whose file another of the same tool is mostly as good as."""


def main() -> None:
    """Measures those asked for, or all."""
    arguments = _parse()
    if not arguments.page:
        _measure_all(arguments)
    figures = json.loads(RAW.read_text(encoding="utf-8"))
    kinds = counted_kinds(figures)
    figures["cases"] = {name: judge_case(case, kinds) for name, case in figures["cases"].items()}
    write_json(RAW, figures)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, section_name(figures), render(figures)))
    print(json.dumps({"page": str(PAGE), "raw": str(RAW)}))


def _measure_all(arguments: argparse.Namespace) -> None:
    is_reused = arguments.reuse or arguments.retime
    goes_on = RAW.exists() and (is_reused or arguments.names)
    figures = json.loads(RAW.read_text(encoding="utf-8")) if goes_on else {"cases": {}}
    figures |= {
        "date": date.today().isoformat(),
        "machine": describe_machine(),
        "overflows": overflows_on_int8(read_flags()),
        "versions": read_versions(),
    }
    for case in list_cases(OUT / "weights", arguments.steps):
        if arguments.names and case.name not in arguments.names:
            continue
        known = figures["cases"].get(case.name, {}).get("files", {}) if is_reused else {}
        without = SELDOM_BEST if arguments.quick else ()
        measured = measure_case(case, OUT, known, keeps_ours=arguments.retime, without=without)
        judged = judge_case(measured | {"plan": _plan(case)}, counted_kinds(figures))
        figures["cases"][case.name] = judged
        write_json(RAW, figures)


def _plan(case: Case) -> dict[str, Any]:
    maker = next(maker for maker in list_ours() if maker.name == FOR_TENSORRT)
    path = maker.out(case_files(case, OUT))
    return build_plan(path) if path.exists() else {"failure": "there is no file for TensorRT"}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unseen", description=__doc__)
    add_names(parser, NETWORKS, "the others' figures stay")
    parser.add_argument("--steps", type=int, default=STEPS, help="of training, each network")
    parser.add_argument(
        "--quick", action="store_true", help=f"in half the time, without {', '.join(SELDOM_BEST)}"
    )
    add_reuse_options(parser)
    return parse_networks(parser)


def parse_networks(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Returns the arguments; ends where a network is unknown, or the peers are not installed."""
    arguments = parse_names(parser, NETWORKS)
    if not PEERS_PYTHON.exists():
        raise SystemExit("the peers' virtual environment is missing: run 'make bench-unseen'")
    return arguments


if __name__ == "__main__":
    main()
