"""Times networks side by side on a runtime: what `--prefer` measures with."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import onnx

from compress.quantize.side_by_side import map_ahead
from engines.random_feeds import random_feeds
from engines.session import Feeds, SessionSettings
from framefit.hang_watch import HangWatch
from framefit.network_session import open_in_memory, set_up
from framefit.paired_times import PairedTimes

if TYPE_CHECKING:
    from engines.session import Session

_log = logging.getLogger(__name__)

RUNTIMES = ("openvino", "onnxruntime")
"""That compile a network where they run it; TensorRT would build a plan for each on a GPU."""
BATCH = 7
SECONDS_PER_BATCH = 2.0
MIN_INFERENCES = 12
MAX_INFERENCES = 200
LONG_SECONDS = 4.0
FEWEST_INFERENCES = 5
"""Enough once a batch has taken `LONG_SECONDS`: a disturbance is little of a slow inference."""
SETTLED = 0.01
"""A batch ends early once the 95 % interval of every latency is this share of it or less: half of
what the choice between two forms of a network takes for noise."""
SETTLED_FORM = 0.02
"""The same where nothing but forms is chosen: a latency is known to half of it on either side."""
QUICK_SECONDS = 0.5
"""Of a batch to choose from, for each network in it, where that is less than a batch's; half as
much where latencies need not be known but to twice as much."""
APART, ROUGHLY = 0.1, 0.05
"""To choose from, an interval may be `APART` of the distance to the nearest other latency, up to a
share of `ROUGHLY`."""
BURST = 3
"""A network runs so often in each of its turns, and all but the first count: that one finds the
caches full of the network before it, and takes up to 40 % longer."""
LONG_INFERENCE_MS = 100.0
"""Networks that take this long on average run once a turn: caches are little of it."""
CALM = 0.2
"""By how much of the fastest inference the lower quartile may be above it on a calm machine."""


class NetworkClock:
    """Measures the latency of networks, a few at a time, a few inferences each in turn.

    The first network is timed again in every batch, and each latency is taken as its ratio to that
    one, so that a machine that speeds up or slows down between batches favours nobody. Within a
    batch neither does one that does so between turns (`framefit.paired_times`).

    Args:
        runtime: a name of `engines.runtimes.BACKENDS`.
        is_to_choose: the latencies decide between networks, and those that are far apart need not
            be known to 1 %.
        settled: the share of a latency that its 95 % interval has when it is known well enough.
    """

    def __init__(
        self, runtime: str, *, is_to_choose: bool = False, settled: float = SETTLED
    ) -> None:
        self.runtime = runtime
        self._is_to_choose = is_to_choose
        self._settled = settled
        self._kept: tuple[onnx.ModelProto, Session] | None = None
        self._has_warned = False

    def __call__(self, models: Sequence[onnx.ModelProto]) -> list[float]:
        """Returns each model's latency in ms; inputs are random.

        It is the lower quartile of the first, a quarter of whose inferences were at least as fast:
        what other processes do to the rest does not reach it, unless they never pause. That is
        warned of, once. The others are their ratios to it.
        """
        ratios, reference_ms = [1.0], []
        for start in range(1, len(models), BATCH):
            batch = self._time_batch([models[0], *models[start : start + BATCH]])
            reference_ms.append(batch[0])
            ratios += [value / batch[0] for value in batch[1:]]
        if not reference_ms:
            return self._time_batch(models)
        reference = median(reference_ms)
        return [ratio * reference for ratio in ratios]

    def open(self, model: onnx.ModelProto) -> "Session":
        """Returns a session of a network: the one that it was timed with if it was the fastest.

        The caller closes it.

        Raises:
            InputError: the runtime does not open it.
        """
        session = self._take_kept([model]).get(0)
        return session or open_in_memory(model, self.runtime)

    def _take_kept(self, models: Sequence[onnx.ModelProto]) -> "dict[int, Session]":
        """Returns the session that was kept by its network's place, closed if it has none."""
        kept, self._kept = self._kept, None
        if kept is None:
            return {}
        known, session = kept
        places = [place for place, model in enumerate(models) if model is known]
        if places:
            return {places[0]: session}
        session.close()
        return {}

    def _time_batch(self, models: Sequence[onnx.ModelProto]) -> list[float]:
        """Returns the latencies of a few networks; the session of the fastest is kept."""
        sessions: dict[int, Session] = {}
        with HangWatch() as watch:
            try:
                self._open_all(models, sessions, watch)
                what = f"{self.runtime} has not returned from running a network to time it"
                limit = partial(watch.during, what, is_cold=True)
                times = _interleave(
                    [sessions[index] for index in range(len(models))],
                    limit,
                    settled=self._settled,
                    is_to_choose=self._is_to_choose,
                )
                fastest = min(sessions, key=times.latencies.__getitem__)
                self._kept = models[fastest], sessions.pop(fastest)
            finally:
                for session in sessions.values():
                    session.close()
        latencies_ns = times.latencies
        self._warn_if_disturbed(latencies_ns[0], times.fastest)
        return [ns / 1e6 for ns in latencies_ns]

    def _open_all(
        self, models: Sequence[onnx.ModelProto], sessions: "dict[int, Session]", watch: HangWatch
    ) -> None:
        """Adds a session for each model by its place; one that was kept is taken again."""
        sessions.update(self._take_kept(models))
        what = f"{self.runtime} has not opened a network to time it"
        with watch.during(what, is_cold=True):
            set_up(self.runtime)
        settings = SessionSettings(takes_turns=True)
        new = [place for place in range(len(models)) if place not in sessions]
        opened = map_ahead(
            partial(open_in_memory, runtime=self.runtime, settings=settings),
            [models[place] for place in new],
        )
        for place in new:
            with watch.during(what, is_cold=True):
                sessions[place] = next(opened)

    def _warn_if_disturbed(self, quartile: float, fastest: float) -> None:
        if quartile > (1 + CALM) * fastest and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "something else takes this machine's time: three of four inferences take %.0f %% "
                "longer than the fastest, or more; latencies are only ratios of each other",
                100 * (quartile / fastest - 1),
            )


def _interleave(
    sessions: "Sequence[Session]",
    limit: Callable[[], AbstractContextManager[None]],
    *,
    settled: float,
    is_to_choose: bool,
) -> PairedTimes:
    """Returns the times of all sessions in ns; each inference is within a `limit()`."""
    most_seconds = SECONDS_PER_BATCH
    if is_to_choose:
        each = QUICK_SECONDS * SETTLED / settled
        most_seconds = min(most_seconds, each * len(sessions))
    rng = np.random.default_rng(0)
    (feeds,) = random_feeds(sessions[0], count=1)
    run = partial(_run, feeds=feeds, limit=limit)
    began = time.perf_counter()
    first_ns = [run(session) for session in sessions]
    is_long = sum(first_ns) > LONG_INFERENCE_MS * 1e6 * len(sessions)
    burst, skipped = (1, 0) if is_long else (BURST, 1)
    turns: list[list[list[int]]] = []
    while True:
        taken: list[list[int]] = [[] for _ in sessions]
        for place in rng.permutation(len(sessions)):
            taken[place] = [run(sessions[place]) for _ in range(burst)][skipped:]
        turns.append(taken)
        count = len(turns) * (burst - skipped)
        is_enough = _is_enough(count, time.perf_counter() - began, most_seconds)
        if count < MIN_INFERENCES and not is_enough:
            continue
        times = PairedTimes(np.array(turns))
        is_settled = _is_settled(times, settled, is_to_choose=is_to_choose)
        if is_enough or is_settled or count >= MAX_INFERENCES:
            return times


def _run(
    session: "Session",
    feeds: Feeds,
    limit: Callable[[], AbstractContextManager[None]],
) -> int:
    """Returns how long one inference took, in ns."""
    with limit():
        start = time.perf_counter_ns()
        session.run_borrowed(feeds)
        return time.perf_counter_ns() - start


def _is_enough(count: int, seconds: float, most_seconds: float) -> bool:
    """Tells whether a batch has been timed often enough."""
    if seconds > LONG_SECONDS:
        return count >= FEWEST_INFERENCES
    return seconds > most_seconds and count >= MIN_INFERENCES


def _is_settled(times: PairedTimes, settled: float, *, is_to_choose: bool) -> bool:
    """Tells whether the ratios are known closely enough, and the first latency if it matters."""
    low, quartile, high = times.quartile_interval
    is_known = (high - low) / quartile <= settled
    if times.count == 1:
        return is_known
    if not is_to_choose:
        return is_known and max(times.widths) <= settled
    return all(
        width <= max(settled, min(ROUGHLY, APART * _nearest(times.ratios, index)))
        for index, width in enumerate(times.widths)
    )


def _nearest(values: Sequence[float], index: int) -> float:
    """Returns the distance from a value to the nearest other, as a share of it."""
    others = (abs(other - values[index]) for at, other in enumerate(values) if at != index)
    return min(others) / values[index]
