"""What a network's latency owes to the one that ran before it; a table of the page.

`python -m benchmarks.turns [FOLDER...]`: three networks of `benchmarks.peers`, and those of your
own as `float.onnx`, `calib.npz`, `held.npz` in a folder (`benchmarks.unseen` writes some).

Copies of an INT8 file, copies of one with its first layers in float, and the float network take
turns, as in a search: with one inference each, which finds the caches full of another network, and
with bursts, of which the first inference does not count, as `framefit.network_clock` and
`benchmarks.interleaved` time. Copies should be equally fast.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import load_onnx, save_onnx
from benchmarks.machine import OtherProcesses, describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.peers.cases import Case, list_cases, own_case, read_feeds
from benchmarks.quantizer_choices import PAGE, RAW
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from engines.random_feeds import random_feeds
from engines.runtimes import open_session
from engines.session import Session, SessionSettings

NETWORKS = ("demo", "FastestDet", "UltraFace")
COPIES, MIXED_COPIES = 4, 2
FLOAT_LAYERS = 8
REPEATS = 4
SECONDS = 2.0
BURSTS = (1, 2, 3, 5)
SECTION = "turns"


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    cases = [case for case in list_cases() if case.name in NETWORKS]
    cases += map(own_case, map(Path, sys.argv[1:]))
    with OtherProcesses() as others:
        rows = [row for case in cases for row in _measure(case)]
    figures = {"rows": rows, "machine": describe_machine(), "others": others.share}
    write_json(RAW.with_name("turns.json"), figures)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, SECTION, _render(figures)))


def _measure(case: Case) -> list[dict[str, Any]]:
    sessions = open_copies(case, COPIES, MIXED_COPIES)
    rows = [_compare(case.name, burst, sessions) for burst in BURSTS]
    for session in sessions:
        session.close()
    return rows


def open_copies(case: Case, copies: int, mixed_copies: int) -> list[Session]:
    """Opens the float network, copies of an INT8 file, and of one with its first layers in float.

    Args:
        case: the network.
        copies: of the INT8 file.
        mixed_copies: of that with `FLOAT_LAYERS` layers in float.
    """
    with case.written() as files:
        model, samples = load_onnx(files.model), read_feeds(files.calibration)
        settings = QuantizeSettings(target="openvino")
        result = quantize_model(model, samples, settings)
        first = tuple(layer.node for layer in result.layers[:FLOAT_LAYERS])
        mixed = quantize_model(model, samples, replace(settings, keep_float=first))
        int8, other = (
            save_onnx(item.model, files.folder / f"{name}.onnx", metadata={})
            for name, item in (("int8", result), ("mixed", mixed))
        )
        paths = [files.model, *[int8] * copies, *[other] * mixed_copies]
        takes_turns = SessionSettings(takes_turns=True)
        return [open_session(path, "openvino", takes_turns) for path in paths]


def _compare(name: str, burst: int, sessions: Sequence[Session]) -> dict[str, Any]:
    """Returns what the copies have in common, and by how much they differ."""
    found = np.array([_take_turns(sessions, burst) for _ in range(REPEATS)])
    float_ms, int8_ms, mixed_ms = np.split(found, [1, 1 + COPIES], axis=1)
    shares = [copies / copies.mean(axis=1, keepdims=True) - 1 for copies in (int8_ms, mixed_ms)]
    row = {
        "network": name,
        "burst": burst,
        "int8_ms": float(int8_ms.mean()),
        "float_ratio": float(float_ms.mean() / int8_ms.mean()),
        "mixed_ratio": float(mixed_ms.mean() / int8_ms.mean()),
        "behind_float": float(shares[0][:, 0].mean()),
        "largest": float(max(np.abs(share).max() for share in shares)),
    }
    print(row, flush=True)
    return row


def _take_turns(sessions: Sequence[Session], burst: int) -> list[float]:
    """Returns the lower quartile of each session's latency in ms."""
    (feeds,) = random_feeds(sessions[0], count=1)
    times_ms: list[list[float]] = [[] for _ in sessions]
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for session, taken in zip(sessions, times_ms, strict=True):
            taken += [_run(session, feeds) for _ in range(burst)][1 if burst > 1 else 0 :]
    return [quantiles(taken, n=4)[0] for taken in times_ms]


def _run(session: Session, feeds: Mapping[str, np.ndarray]) -> float:
    start = time.perf_counter()
    session.run_borrowed(feeds)
    return 1e3 * (time.perf_counter() - start)


def _render(figures: Mapping[str, Any]) -> list[str]:
    head = (
        "network",
        "inferences a turn",
        "INT8, ms",
        f"first {FLOAT_LAYERS} layers in float, of INT8's",
        "float, of INT8's",
        "the copy behind float, beside the mean of all",
        "copies differ from their mean by at most",
    )
    cells = [
        (
            row["network"],
            str(row["burst"]),
            f"{row['int8_ms']:.2f}",
            f"{row['mixed_ratio']:.2f}",
            f"{row['float_ratio']:.2f}",
            f"{row['behind_float']:+.1%}",
            f"{row['largest']:.1%}",
        )
        for row in figures["rows"]
    ]
    return [
        f"{COPIES} copies of an INT8 file, {MIXED_COPIES} of one with its first {FLOAT_LAYERS} "
        f"layers in float, and the float network take turns on OpenVINO, {REPEATS} times for "
        f"{SECONDS:g} s; lower quartiles, without the first inference of a turn where there are "
        f"several. Measured in one run on {figures['machine']}; other processes took "
        f"{figures['others']:.0%} of the processors' time.",
        "",
        *table_lines(head, cells),
    ]


if __name__ == "__main__":
    main()
