"""One network through every tool: files made, judged on held-out pictures, timed in turns."""

import argparse
from collections.abc import Collection, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.machine import OtherProcesses
from benchmarks.peers.cases import Case, CaseFiles, read_feeds
from benchmarks.peers.judge import ONNXRUNTIME, OPENVINO, TITLES, measure_latency, measure_quality
from benchmarks.peers.makers import HERE, OURS, Maker, list_ours, list_peers, make
from benchmarks.peers.standing import CPU_TIME, KINDS, LATENCY, judge_peer

MOST_FOR_OTHERS = 0.25
"""Beyond this share of the processors' time for others, latencies say little."""


def add_reuse_options(parser: argparse.ArgumentParser) -> None:
    """Adds what of the last run is kept, see `measure_case`."""
    parser.add_argument(
        "--reuse", action="store_true", help="keep the peers' files and costs of the last run"
    )
    parser.add_argument(
        "--retime", action="store_true", help="keep all files of the last run and time them again"
    )
    parser.add_argument(
        "--page", action="store_true", help="only write the page from the last run's figures"
    )


def measure_case(
    case: Case,
    out: Path,
    known: dict[str, Any],
    *,
    keeps_ours: bool,
    without: Collection[str] = (),
    runtime: str = OPENVINO,
) -> dict[str, Any]:
    """Lets every tool quantize a network, and judges all files.

    Args:
        case: the network and its pictures.
        out: folder of all files.
        known: the peers' files of an earlier run, whose figures are kept; none if empty.
        keeps_ours: keeps framefit's files of that run too.
        without: names of settings that are left out.
        runtime: a key of `TITLES`; on onnxruntime, files of OpenVINO's own format are left out.

    Returns:
        {"split", "others", "float_ms", "float_p50_ms", "float_cpu_ms", "files": by name, quality,
        latency and cost, or {"failure"}}.
    """
    files = case_files(case, out)
    files.folder.mkdir(parents=True, exist_ok=True)
    if not (known and files.held_out.exists()):
        case.write(files)
    count = len(read_feeds(files.calibration))
    rows: dict[str, Any] = {}
    made: dict[str, Maker] = {}
    for maker in (*list_peers(), *list_ours(runtime)):
        if maker.name in without or (runtime == ONNXRUNTIME and maker.suffix != ".onnx"):
            continue
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
    quality = measure_quality(files.model, paths, read_feeds(files.held_out), runtime)
    runnable = {name: path for name, path in paths.items() if "failure" not in quality[name]["run"]}
    with OtherProcesses() as others:
        latency = measure_latency({"float": files.model, **runnable}, case.rounds, runtime)
    for name in paths:
        if name in runnable:
            rows[name] |= quality[name] | latency[name]
        else:
            rows[name] = {"failure": f"{TITLES[runtime]}: {quality[name]['run']['failure']}"}
    return {
        "split": case.split,
        "others": others.share,
        "float_ms": latency["float"]["min_ms"],
        "float_p50_ms": latency["float"]["p50_ms"],
        "float_cpu_ms": latency["float"]["cpu_ms"],
        "files": rows,
    }


def case_files(case: Case, out: Path) -> CaseFiles:
    """Returns where a case's files are within the folder of all files."""
    return CaseFiles(out / case.name.lower().replace(", ", "-"))


def judge_case(case: dict[str, Any], kinds: Sequence[str] = KINDS) -> dict[str, Any]:
    """Returns what `measure_case` found with the verdict on each peer's file.

    Args:
        case: of `measure_case`.
        kinds: of `KINDS` that count.

    Returns:
        the case with {"judged_by", "kinds", "standing": of each file}.
    """
    time = CPU_TIME if case["others"] > MOST_FOR_OTHERS else LATENCY
    standing = _stand(case["files"], time, kinds)
    return case | {"judged_by": time, "kinds": [*kinds], "standing": standing}


def _stand(rows: dict[str, Any], time: str, kinds: Sequence[str]) -> dict[str, Any]:
    judged = {name: row for name, row in rows.items() if "failure" not in row}
    ours = {name: row for name, row in judged.items() if name.startswith(OURS)}
    peers = {name: row for name, row in judged.items() if name not in ours}
    return {name: judge_peer(row, ours, time, kinds) for name, row in peers.items()} if ours else {}


def read_versions() -> dict[str, str]:
    """Returns the versions of all tools."""
    known = {name: version(name) for name in ("framefit", "openvino", "onnxruntime")}
    for line in (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines():
        if "==" in line:
            name, number = line.split("==")
            known[f"peers' {name.split('[')[0]}"] = number
    return known
