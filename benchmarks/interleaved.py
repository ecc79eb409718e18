"""Times networks side by side: a few inferences each in turn, so that all see the same machine."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.random_feeds import random_feeds
from engines.runtimes import open_session
from engines.session import Session, SessionSettings
from framefit.network_clock import BURST

WARM_UP = 10


def time_networks(
    paths: Mapping[str, Path], runtime: str = "openvino", rounds: int = 300
) -> dict[str, dict[str, float]]:
    """Returns the figures of `time_sessions` for the networks in these files."""
    settings = SessionSettings(takes_turns=True)
    sessions = {name: open_session(path, runtime, settings) for name, path in paths.items()}
    times = time_sessions(sessions, rounds)
    for session in sessions.values():
        session.close()
    return times


def time_sessions(
    sessions: Mapping[str, Session | Any], rounds: int
) -> dict[str, dict[str, float]]:
    """Times open sessions, host arrays in and out; they stay open.

    Of the inferences of a turn the first does not count, as in `framefit.network_clock`.

    Args:
        sessions: by name.
        rounds: inferences that count of each, at least: whole bursts are run.

    Returns:
        per session {"p50_ms", "p99_ms", "min_ms", "cpu_ms"}; the last is the smallest processor
        time of one inference over all threads, which hardly depends on what else the machine does.
    """
    feeds = {name: random_feeds(session, count=1)[0] for name, session in sessions.items()}
    times_ns: dict[str, list[int]] = {name: [] for name in sessions}
    cpu_ns = {name: 2**62 for name in sessions}
    turns = -(-rounds // (BURST - 1))
    for turn in range(WARM_UP + turns):
        for name, session in sessions.items():
            for place in range(BURST):
                start_cpu, start = time.process_time_ns(), time.perf_counter_ns()
                session.run_borrowed(feeds[name])
                end, end_cpu = time.perf_counter_ns(), time.process_time_ns()
                if turn >= WARM_UP and place:
                    times_ns[name].append(end - start)
                    cpu_ns[name] = min(cpu_ns[name], end_cpu - start_cpu)
    count = turns * (BURST - 1)
    ranks = {"p50_ms": -(-count * 50 // 100), "p99_ms": -(-count * 99 // 100), "min_ms": 1}
    return {
        name: {key: sorted(values)[rank - 1] / 1e6 for key, rank in ranks.items()}
        | {"cpu_ms": cpu_ns[name] / 1e6}
        for name, values in times_ns.items()
    }


def take_turns(
    sessions: Sequence[Session], feeds: Mapping[str, NDArray[Any]], turns: int
) -> NDArray[np.int64]:
    """Returns the times of inferences in ns, [turns, sessions, inferences of a turn that count].

    They are for `framefit.paired_times`; in each turn the sessions come in another order.

    Args:
        sessions: opened.
        feeds: what all of them are given.
        turns: of each session.
    """
    rng = np.random.default_rng(0)
    times = np.zeros((turns, len(sessions), BURST), np.int64)
    for turn in times:
        for place in rng.permutation(len(sessions)):
            for inference in range(BURST):
                start = time.perf_counter_ns()
                sessions[place].run_borrowed(feeds)
                turn[place, inference] = time.perf_counter_ns() - start
    return times[..., 1:]
