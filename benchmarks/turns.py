"""What a network's latency owes to the one that ran before it; a table of the page.

`python -m benchmarks.turns`

A network and four copies of its INT8 file take turns: with one inference each, which finds the
caches full of another network, and with bursts, of which the first inference does not count, as
`framefit.network_clock` and `benchmarks.interleaved` time. The copies should be equally fast.
"""

import time
from collections.abc import Mapping, Sequence
from statistics import quantiles
from typing import Any

import numpy as np

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import load_onnx, save_onnx
from benchmarks.machine import OtherProcesses, describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.peers.cases import Case, list_cases, read_feeds
from benchmarks.quantizer_choices import PAGE, RAW
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from engines.runtimes import open_session
from engines.session import Session, SessionSettings

NETWORKS = ("demo", "FastestDet", "UltraFace")
COPIES = 4
REPEATS = 5
SECONDS = 3.0
BURSTS = (1, 2, 3, 5)
SECTION = "turns"


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    with OtherProcesses() as others:
        rows = [row for case in list_cases() if case.name in NETWORKS for row in _measure(case)]
    figures = {"rows": rows, "machine": describe_machine(), "others": others.share}
    write_json(RAW.with_name("turns.json"), figures)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, SECTION, _render(figures)))


def _measure(case: Case) -> list[dict[str, Any]]:
    with case.written() as files:
        model = load_onnx(files.model)
        settings = QuantizeSettings(target="openvino")
        result = quantize_model(model, read_feeds(files.calibration), settings)
        int8 = save_onnx(result.model, files.folder / "int8.onnx", metadata={})
        takes_turns = SessionSettings(takes_turns=True)
        paths = [files.model, *[int8] * COPIES]
        sessions = [open_session(path, "openvino", takes_turns) for path in paths]
    rows = []
    for burst in BURSTS:
        found = [_take_turns(sessions, burst) for _ in range(REPEATS)]
        float_ms, *copies_ms = np.transpose(found)
        typical = np.mean(copies_ms, axis=0)
        row = {
            "network": case.name,
            "burst": burst,
            "int8_ms": float(typical.mean()),
            "float_ratio": float(np.mean(float_ms / typical)),
            "first_ratio": float(np.mean(copies_ms[0] / typical)),
            "deviation": float(np.std(copies_ms / typical)),
            "largest": float(np.abs(copies_ms / typical - 1).max()),
        }
        print(row, flush=True)
        rows.append(row)
    for session in sessions:
        session.close()
    return rows


def _take_turns(sessions: Sequence[Session], burst: int) -> list[float]:
    """Returns the lower quartile of each session's latency in ms."""
    rng = np.random.default_rng(0)
    feeds = {item.name: rng.random(item.shape).astype(item.dtype) for item in sessions[0].inputs}
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
        "float, of INT8's",
        "the copy behind float",
        "copies differ by (standard deviation)",
        "at most",
    )
    cells = [
        (
            row["network"],
            str(row["burst"]),
            f"{row['int8_ms']:.2f}",
            f"{row['float_ratio']:.2f}",
            f"{row['first_ratio']:.3f}",
            f"{row['deviation']:.1%}",
            f"{row['largest']:.1%}",
        )
        for row in figures["rows"]
    ]
    return [
        f"{COPIES} copies of one INT8 file and the float network take turns on OpenVINO, "
        f"{REPEATS} times for {SECONDS:g} s; lower quartiles, without the first inference of a "
        f"turn where there are several. Measured in one run on {figures['machine']}; other "
        f"processes took {figures['others']:.0%} of the processors' time.",
        "",
        *table_lines(head, cells),
    ]


if __name__ == "__main__":
    main()
