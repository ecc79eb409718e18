"""Ratios of latencies: by each network's lower quartile, and within each turn; a table of the page.

`python -m benchmarks.paired_times`: the float network, two copies of an INT8 file and two of one
with its first layers in float take turns for a minute. Of every few turns in a row both ways give
ratios, which are compared with what the same way makes of all turns.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.atomic import write_json, write_text
from benchmarks.interleaved import take_turns
from benchmarks.machine import OtherProcesses, describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.peers.cases import Case, list_cases
from benchmarks.quantizer_choices import PAGE, RAW
from benchmarks.turns import NETWORKS, open_copies
from engines.random_feeds import random_feeds
from framefit.paired_times import PairedTimes

COPIES = 2
SECONDS = 60.0
FEW_TURNS = (6, 12, 24)
"""What a clock takes to choose between forms of a network, and more."""
SECTION = "paired_times"

Times = NDArray[np.int64]


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    with OtherProcesses() as others:
        rows = [_measure(case) for case in list_cases() if case.name in NETWORKS]
    figures = {"rows": rows, "machine": describe_machine(), "others": others.share}
    write_json(RAW.with_name("paired_times.json"), figures)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, SECTION, _render(figures)))


def _measure(case: Case) -> dict[str, Any]:
    sessions = open_copies(case, COPIES, COPIES)
    (feeds,) = random_feeds(sessions[0], count=1)
    began = time.perf_counter()
    first = take_turns(sessions, feeds, max(FEW_TURNS))
    seconds_per_turn = (time.perf_counter() - began) / len(first)
    times = np.concatenate([first, take_turns(sessions, feeds, round(SECONDS / seconds_per_turn))])
    for session in sessions:
        session.close()
    row = {
        "network": case.name,
        "turns": len(times),
        "spread": float(np.quantile(times[:, 0], 0.75) / np.quantile(times[:, 0], 0.25) - 1),
        "errors": {
            count: {name: _find_error(times, count, log_ratios) for name, log_ratios in WAYS}
            for count in FEW_TURNS
        },
        "float_ratio": {name: float(np.exp(-log_ratios(times)[1])) for name, log_ratios in WAYS},
    }
    print(row, flush=True)
    return row


def _by_quartiles(times: Times) -> NDArray[np.float64]:
    """Returns the logarithms of the ratios of each network's lower quartile to the first's."""
    quartiles = np.log(np.quantile(times, 0.25, axis=(0, 2)))
    return np.asarray(quartiles - quartiles[0], np.float64)


def _within_turns(times: Times) -> NDArray[np.float64]:
    return np.log(PairedTimes(times).ratios)


WAYS: tuple[tuple[str, Callable[[Times], NDArray[np.float64]]], ...] = (
    ("quartiles", _by_quartiles),
    ("turns", _within_turns),
)


def _find_error(
    times: Times, count: int, log_ratios: Callable[[Times], NDArray[np.float64]]
) -> float:
    """Returns the root mean square of the error of all networks' ratios to each other."""
    whole = log_ratios(times)
    errors = [log_ratios(part) - whole for part in _windows(times, count)]
    pairs = [one - other for error in errors for one, other in combinations(error, 2)]
    return float(np.sqrt(np.mean(np.square(pairs))))


def _windows(times: Times, count: int) -> Iterator[Times]:
    for start in range(0, len(times) - count + 1, count):
        yield times[start : start + count]


def _render(figures: Mapping[str, Any]) -> list[str]:
    head = (
        *("network", "middle half of the float network's times", "turns"),
        *("error of ratios, by quartiles", "within turns"),
        *("float, of INT8's, by quartiles of all", "within all turns"),
    )
    cells = [
        (
            row["network"],
            f"{row['spread']:.0%}",
            str(count),
            *(f"{100 * error[name]:.1f}%" for name, _ in WAYS),
            *(f"{row['float_ratio'][name]:.2f}" for name, _ in WAYS),
        )
        for row in figures["rows"]
        for count, error in row["errors"].items()
    ]
    return [
        f"The float network, {COPIES} copies of its INT8 file and {COPIES} with layers in float "
        f"take turns on OpenVINO for {SECONDS:g} s. The error is the root mean square over all "
        "windows of so many turns and all pairs of networks, against all turns. Measured in one "
        f"run on {figures['machine']}; other processes took {figures['others']:.0%} of the "
        "processors' time.",
        "",
        *table_lines(head, cells),
    ]


if __name__ == "__main__":
    main()
