"""`make bench-quantize`: framefit and the peers on the same networks and pictures."""

import argparse
import json
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from artifacts.atomic import write_json, write_text
from benchmarks.machine import OtherProcesses, describe_machine
from benchmarks.marked import replace_section
from benchmarks.peers import page
from benchmarks.peers.cases import (
    COST_PICTURES,
    COST_SIZE,
    Case,
    CaseFiles,
    list_cases,
    own_case,
    read_feeds,
    write_cost_case,
)
from benchmarks.peers.judge import measure_latency, measure_quality
from benchmarks.peers.makers import HERE, OURS, PEERS_PYTHON, Maker, list_ours, list_peers, make
from benchmarks.peers.standing import CPU_TIME, LATENCY, judge_peer

PAGE = Path("docs/benchmarks.md")
COST = "cost"
MOST_FOR_OTHERS = 0.25
"""Beyond this share of the processors' time for others, latencies say little."""


def main() -> None:
    """Measures, writes the raw figures and the page's section."""
    arguments = _parse()
    raw = arguments.out / ("own.json" if arguments.own else "figures.json")
    if not arguments.page:
        _measure_all(arguments, raw)
    figures = json.loads(raw.read_text(encoding="utf-8"))
    for case in figures["cases"].values():
        case["judged_by"] = CPU_TIME if case["others"] > MOST_FOR_OTHERS else LATENCY
        case["standing"] = _stand(case["files"], case["judged_by"])
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


def _measure_all(arguments: argparse.Namespace, raw: Path) -> None:
    is_reused = arguments.reuse or arguments.retime
    goes_on = raw.exists() and (is_reused or arguments.case)
    figures = json.loads(raw.read_text()) if goes_on else {"cases": {}}
    figures |= {
        "date": date.today().isoformat(),
        "machine": describe_machine(),
        "versions": _versions(),
    }
    for case in [own_case(folder) for folder in arguments.own] or list_cases():
        if arguments.case and case.name not in arguments.case:
            continue
        known = figures["cases"].get(case.name, {}).get("files", {}) if is_reused else {}
        figures["cases"][case.name] = _measure(
            case, arguments.out, known, keeps_ours=arguments.retime
        )
        write_json(raw, figures)
    if COST in arguments.case or not (arguments.case or arguments.own or arguments.retime):
        figures[COST] = _measure_cost(arguments.out)
        write_json(raw, figures)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        help=f"one network's name, or '{COST}'; the others' figures stay",
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
    parser.add_argument("--out", type=Path, default=Path("out/peers"), help="folder of all files")
    parser.add_argument(
        "--reuse", action="store_true", help="keep the peers' files and costs of the last run"
    )
    parser.add_argument(
        "--retime", action="store_true", help="keep all files of the last run and time them again"
    )
    parser.add_argument(
        "--page", action="store_true", help="only write the page from the last run's figures"
    )
    return parser.parse_args()


def _measure(case: Case, out: Path, known: dict[str, Any], *, keeps_ours: bool) -> dict[str, Any]:
    files = CaseFiles(out / case.name.lower().replace(", ", "-"))
    files.folder.mkdir(parents=True, exist_ok=True)
    if not (known and files.held_out.exists()):
        case.write(files)
    count = len(read_feeds(files.calibration))
    rows: dict[str, Any] = {}
    made: dict[str, Maker] = {}
    for maker in (*list_peers(), *list_ours()):
        cost = known.get(maker.name)
        if cost is not None:
            cost = cost | {"is_reused": True}
        is_wanted_anew = maker.is_ours and not keeps_ours
        if is_wanted_anew or cost is None or not ("failure" in cost or maker.out(files).exists()):
            print(f"{case.name}: {maker.name}", flush=True)
            cost = make(maker, files, count)
        rows[maker.name] = dict(cost)
        if "failure" not in cost:
            made[maker.name] = maker
    paths = {name: maker.out(files) for name, maker in made.items()}
    quality = measure_quality(files.model, paths, read_feeds(files.held_out))
    runnable = {name: path for name, path in paths.items() if "failure" not in quality[name]["run"]}
    with OtherProcesses() as others:
        latency = measure_latency({"float": files.model, **runnable}, case.rounds)
    for name in paths:
        if name in runnable:
            rows[name] |= quality[name] | latency[name]
        else:
            rows[name] = {"failure": f"OpenVINO: {quality[name]['run']['failure']}"}
    return {
        "split": case.split,
        "others": others.share,
        "float_ms": latency["float"]["min_ms"],
        "float_p50_ms": latency["float"]["p50_ms"],
        "files": rows,
    }


def _stand(rows: dict[str, Any], time: str) -> dict[str, Any]:
    judged = {name: row for name, row in rows.items() if "failure" not in row}
    ours = {name: row for name, row in judged.items() if name.startswith(OURS)}
    peers = {name: row for name, row in judged.items() if name not in ours}
    return {name: judge_peer(row, ours, time) for name, row in peers.items()} if ours else {}


def _measure_cost(out: Path) -> dict[str, Any]:
    files = CaseFiles(out / COST)
    files.folder.mkdir(parents=True, exist_ok=True)
    write_cost_case(files)
    rows = {}
    for maker in (*list_peers(), *list_ours()):
        if maker.is_default:
            print(f"{COST}: {maker.name}", flush=True)
            rows[maker.name] = make(maker, files, COST_PICTURES)
    what = f"resnet18 of timm on {COST_PICTURES} pictures of {COST_SIZE}x{COST_SIZE}"
    return {"what": what, "files": rows}


def _versions() -> dict[str, str]:
    known = {name: version(name) for name in ("framefit", "openvino", "onnxruntime")}
    for line in (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines():
        if "==" in line:
            name, number = line.split("==")
            known[f"peers' {name.split('[')[0]}"] = number
    return known


if __name__ == "__main__":
    if not PEERS_PYTHON.exists():
        raise SystemExit("the peers' virtual environment is missing: run 'make bench-quantize'")
    main()
