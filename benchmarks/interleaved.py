"""Times networks side by side: one inference each in turn, so that all see the same machine."""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engines.runtimes import open_session

WARM_UP = 10


def time_networks(
    paths: Mapping[str, Path], runtime: str = "openvino", rounds: int = 300
) -> dict[str, dict[str, float]]:
    """Returns {"p50_ms", "p99_ms"} of each network's inference, host arrays in and out."""
    rng = np.random.default_rng(0)
    sessions = {name: open_session(path, runtime) for name, path in paths.items()}
    feeds = {
        name: {item.name: rng.random(item.shape).astype(item.dtype) for item in session.inputs}
        for name, session in sessions.items()
    }
    times_ns: dict[str, list[int]] = {name: [] for name in paths}
    for turn in range(WARM_UP + rounds):
        for name, session in sessions.items():
            start = time.perf_counter_ns()
            session.run(feeds[name])
            if turn >= WARM_UP:
                times_ns[name].append(time.perf_counter_ns() - start)
    for session in sessions.values():
        session.close()
    ranks = {"p50_ms": -(-rounds * 50 // 100), "p99_ms": -(-rounds * 99 // 100)}
    return {
        name: {key: sorted(values)[rank - 1] / 1e6 for key, rank in ranks.items()}
        for name, values in times_ns.items()
    }
