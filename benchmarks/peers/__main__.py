"""`make bench-quantize`: framefit and the peers on the same networks and pictures."""

import argparse
import json
from datetime import date
from pathlib import Path
from typing import Any

from artifacts.atomic import write_json, write_text
from artifacts.processor import overflows_on_int8, read_flags
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section
from benchmarks.peers import page
from benchmarks.peers.cases import list_cases, own_case
from benchmarks.peers.cost import COST_CASES, measure_cost
from benchmarks.peers.judge import OPENVINO, TITLES
from benchmarks.peers.makers import PEERS_PYTHON
from benchmarks.peers.measure import add_reuse_options, judge_case, measure_case, read_versions
from benchmarks.peers.standing import counted_kinds

PAGE = Path("docs/benchmarks.md")


def main() -> None:
    """Measures, writes the raw figures and the page's section."""
    arguments = _parse()
    raw = _figures_file(arguments)
    if not arguments.page:
        _measure_all(arguments, raw)
    figures = json.loads(raw.read_text(encoding="utf-8"))
    for case in figures["cases"].values():
        case |= judge_case(case, counted_kinds(figures))
    write_json(raw, figures)
    target = raw.with_suffix(".md") if arguments.own else PAGE
    if arguments.own:
        text = "\n".join(page.render(page.OWN, figures, figures["cases"]))
    else:
        text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else "# Benchmarks\n"
        for name, lines in page.sections(figures).items():
            text = replace_section(text, name, lines)
    write_text(target, text)
    print(json.dumps({"page": str(target), "raw": str(raw)}))


def _figures_file(arguments: argparse.Namespace, runtime: str | None = None) -> Path:
    """Returns where the raw figures are."""
    stem = "own" if arguments.own else "figures"
    runtime = runtime or arguments.runtime
    out: Path = arguments.out
    return out / (f"{stem}.json" if runtime == OPENVINO else f"{stem}-{runtime}.json")


def _measure_all(arguments: argparse.Namespace, raw: Path) -> None:
    is_reused = arguments.reuse or arguments.retime
    goes_on = raw.exists() and (is_reused or arguments.case)
    figures = json.loads(raw.read_text()) if goes_on else {"cases": {}}
    figures |= {
        "runtime": arguments.runtime,
        "date": date.today().isoformat(),
        "machine": describe_machine(),
        "overflows": overflows_on_int8(read_flags()),
        "versions": read_versions(),
    }
    for case in [own_case(folder) for folder in arguments.own] or list_cases():
        if arguments.case and case.name not in arguments.case:
            continue
        known = _known_files(arguments, figures, case.name) if is_reused else {}
        figures["cases"][case.name] = measure_case(
            case, arguments.out, known, keeps_ours=arguments.retime, runtime=arguments.runtime
        )
        write_json(raw, figures)
    is_whole = not (arguments.case or arguments.own or arguments.retime)
    is_whole = is_whole and arguments.runtime == OPENVINO
    for cost in COST_CASES:
        if is_whole or cost.name in arguments.case:
            figures[cost.name] = measure_cost(cost, arguments.out)
            write_json(raw, figures)


def _known_files(
    arguments: argparse.Namespace, figures: dict[str, Any], case: str
) -> dict[str, Any]:
    """Returns a case's files of an earlier run; the peers' are the same for every runtime."""
    made_for_openvino = _figures_file(arguments, OPENVINO)
    if case in figures["cases"] or not made_for_openvino.exists():
        files: dict[str, Any] = figures["cases"].get(case, {}).get("files", {})
        return files
    others = json.loads(made_for_openvino.read_text(encoding="utf-8"))["cases"].get(case, {})
    refused = f"{TITLES[OPENVINO]}: "
    return {
        name: row
        for name, row in others.get("files", {}).items()
        if not row.get("failure", "").startswith(refused)
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        choices=[item.name for item in (*list_cases(), *COST_CASES)],
        help="one network's name; the others' figures stay",
    )
    parser.add_argument(
        "--own",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="a network of yours instead: float.onnx, calib.npz and held.npz (one array per input, "
        "the first axis counts samples); the table goes to own.md in --out",
    )
    parser.add_argument(
        "--runtime",
        choices=list(TITLES),
        default=OPENVINO,
        help="that runs the files; with onnxruntime, --reuse takes the peers' files of a run with "
        "openvino",
    )
    parser.add_argument("--out", type=Path, default=Path("out/peers"), help="folder of all files")
    add_reuse_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    if not PEERS_PYTHON.exists():
        raise SystemExit("the peers' virtual environment is missing: run 'make bench-quantize'")
    main()
