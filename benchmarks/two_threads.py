"""Whether this machine's processors wait long for each other at times: prints a table.

`python -m benchmarks.two_threads MODEL...`: each network takes turns on each runtime with one
thread and with two, for a minute. Of each window, some turns long, the median counts; what
differs between two threads' windows, and not between one thread's, is the way between the
processors (docs/latency.md).
"""

import sys
import time
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.interleaved import time_sessions
from benchmarks.marked import table_lines
from engines.runtimes import open_session
from engines.session import SessionSettings

SECONDS = 60.0
ROUNDS = 20
RUNTIMES = ("openvino", "onnxruntime")
THREADS = (1, 2)


def main() -> None:
    """Measures and prints."""
    kinds = list(product(map(Path, sys.argv[1:]), RUNTIMES, THREADS))
    if not kinds:
        sys.exit("expected the .onnx files of one network or more")
    sessions = {
        f"{path.stem}, {runtime}, {threads}": open_session(
            path, runtime, SessionSettings(threads=threads, takes_turns=True)
        )
        for path, runtime, threads in kinds
    }
    end, windows = time.monotonic() + SECONDS, []
    while time.monotonic() < end:
        times = time_sessions(sessions, ROUNDS)
        windows.append([times[name]["p50_ms"] for name in sessions])
    low, middle, high = np.percentile(windows, (10, 50, 90), axis=0)
    print(f"{len(windows)} windows; ms, a tenth of the windows' medians is beyond each end")
    rows = [
        [name, *(f"{value:.2f}" for value in (*found, found[-1] / found[0]))]
        for name, *found in zip(sessions, low, middle, high, strict=True)
    ]
    header = ["network, runtime, threads", "low", "middle", "high", "high / low"]
    print("\n".join(table_lines(header, rows)))


if __name__ == "__main__":
    main()
