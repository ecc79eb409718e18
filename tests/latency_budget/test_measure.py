import asyncio
import copy
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.pool import ThreadPool
from threading import Thread

import numpy as np
import pytest

from artifacts.errors import InputError, UnavailableError
from latency_budget.clock import ManualClock, MonotonicClock
from latency_budget.experiment import Parts, run_experiment
from latency_budget.measure import (
    MeasureSettings,
    arrival_offset_ns,
    measure_closed,
    measure_paced,
)
from latency_budget.sensors import Snapshot
from latency_budget.stage import Stage
from latency_budget.statistics import percentile_ns

MS = 1_000_000


class Pipeline:
    """Stages whose durations in ms come from functions of the frame's number."""

    def __init__(self, clock, **durations):
        self.clock, self.calls = clock, 0
        self.stages = [
            Stage(name, self._spend(duration, position == 0))
            for position, (name, duration) in enumerate(durations.items())
        ]

    def _spend(self, duration, is_first):
        def run(payload):
            self.calls += is_first
            self.clock.advance_ns(round(duration(self.calls - 1) * MS))
            return payload

        return run


def settings_for(clock, **values):
    return MeasureSettings(**{"clock": clock, "warmup_frames": 0, "frames": 1000} | values)


def test_every_stage_is_timed_in_order():
    clock = ManualClock()
    pipeline = Pipeline(clock, preprocess=lambda i: 2, network=lambda i: 20, planning=lambda i: 1)
    run = measure_closed(pipeline.stages, [None], settings_for(clock, frames=5))
    assert run.stage_names == ("preprocess", "network", "planning")
    assert (run.stage_ns("network") == 20 * MS).all()
    assert (run.latency_ns == 23 * MS).all()
    assert run.find_defects() == ()


def test_payload_passes_from_stage_to_stage_and_frames_go_round():
    seen = []
    stages = [Stage("double", lambda x: 2 * x), Stage("keep", lambda x: seen.append(x))]
    measure_closed(stages, (i for i in range(3)), MeasureSettings(frames=4, warmup_frames=0))
    assert seen == [0, 2, 4, 0]


def test_a_stall_each_minute_is_invisible_in_closed_loop_and_plain_when_paced():
    """Row 103: one second of stall each minute."""
    for measure, misses in ((measure_closed, 1), (measure_paced, 30)):
        clock = ManualClock()
        pipeline = Pipeline(clock, network=lambda i: 1000 if i % 1800 == 900 else 20)
        run = measure(pipeline.stages, [None], settings_for(clock, frames=1800))
        found = int(run.find_misses(33 * MS).sum())
        assert found == 1 if measure is measure_closed else found > misses


def test_latency_counts_from_the_arrival_not_from_the_start():
    clock = ManualClock()
    pipeline = Pipeline(clock, network=lambda i: 100 if i == 0 else 10)
    run = measure_paced(pipeline.stages, [None], settings_for(clock, frames=4, rate_hz=20))
    assert (run.latency_ns // MS).tolist() == [100, 60, 20, 10]
    assert (run.queue_ns // MS).tolist() == [0, 50, 10, 0]


def test_latest_drops_overtaken_frames_and_counts_them_as_missed():
    """Row 110: all survivors are fast, and still the drops are misses."""
    clock = ManualClock()
    pipeline = Pipeline(clock, network=lambda i: 60)
    run = measure_paced(
        pipeline.stages, [None], settings_for(clock, frames=100, rate_hz=25, policy="latest")
    )
    assert 0.3 < run.dropped.mean() < 0.4
    assert (run.find_misses(200 * MS) == run.dropped).all()
    assert run.find_defects() == ()
    assert percentile_ns(np.sort(run.latency_ns), 0.99) is None


def test_latest_processes_every_frame_when_it_keeps_up():
    clock = ManualClock()
    run = measure_paced(
        Pipeline(clock, network=lambda i: 20).stages,
        [None],
        settings_for(clock, frames=50, policy="latest"),
    )
    assert not run.dropped.any()
    assert (run.latency_ns == 20 * MS).all()


def test_arrivals_do_not_accumulate_rounding():
    clock = ManualClock()
    run = measure_paced(
        Pipeline(clock, network=lambda i: 1).stages, [None], settings_for(clock, frames=3001)
    )
    assert run.arrival_ns[3000] - run.arrival_ns[0] == 100 * 10**9
    from fractions import Fraction

    assert arrival_offset_ns(2997, Fraction("29.97")) == 100 * 10**9


def test_warm_up_is_kept_apart():
    clock = ManualClock()
    pipeline = Pipeline(clock, network=lambda i: 500 if i == 0 else 20)
    run = measure_paced(
        pipeline.stages, [None], settings_for(clock, frames=100, warmup_frames=90, rate_hz=30)
    )
    assert len(run.warmup_ns) == 90
    assert run.warmup_ns[0] == 500 * MS
    assert (run.latency_ns == 20 * MS).all()


def test_garbage_collection_is_off_while_timing_and_back_afterwards():
    states = []
    stages = [Stage("look", lambda x: states.append(gc.isenabled()))]
    assert gc.isenabled()
    run = measure_closed(stages, [None], MeasureSettings(frames=3, warmup_frames=1))
    assert states == [True, False, False, False]
    assert gc.isenabled()
    assert run.gc_collections == 0


def test_objects_stay_frozen_only_where_a_caller_froze_them():
    made_before = [object()]
    settings = MeasureSettings(frames=1, warmup_frames=0)

    def is_frozen() -> bool:
        return all(item is not made_before for item in gc.get_objects())

    gc.freeze()
    measure_closed([Stage("work", abs)], [0], settings)
    assert is_frozen()
    gc.unfreeze()
    measure_closed([Stage("work", abs)], [0], settings)
    assert not is_frozen()
    assert gc.get_freeze_count() == 0
    gc.freeze()


def test_a_collection_forced_by_a_stage_is_counted():
    run = measure_closed(
        [Stage("collect", lambda x: gc.collect())], [0], MeasureSettings(frames=3, warmup_frames=0)
    )
    assert run.gc_collections == 3


def test_a_stage_that_raises_is_named_with_its_frame():
    def explode(payload):
        raise ValueError("no such tensor")

    clock = ManualClock()
    stages = [*Pipeline(clock, first=lambda i: 1).stages, Stage("second", explode)]
    with pytest.raises(InputError, match=r"stage 'second' raised ValueError on frame 0: no such"):
        measure_paced(stages, [None], settings_for(clock))
    assert gc.isenabled()


async def run_later(payload):
    return payload


def run_lazily(payload):
    yield payload


class RunsLater:
    async def __call__(self, payload):
        return payload


@pytest.mark.parametrize(
    ("stages", "frames", "message"),
    [
        ([], [0], "no stage"),
        ([Stage("a", str), Stage("a", str)], [0], "used twice"),
        ([Stage("a", None)], [0], "'a' is to run a NoneType"),
        ([Stage("a", run_later)], [0], "'a' is a coroutine function"),
        ([Stage("a", partial(run_lazily))], [0], "'a' is a generator function"),
        ([Stage("a", RunsLater())], [0], "'a' is a coroutine function"),
        ([("a", str)], [0], "a stage is a tuple"),
        ([Stage("latency", str)], [0], "'latency', which stands for the whole frame"),
        ([Stage("a", str)], [], "no frame"),
    ],
)
def test_wrong_stages_and_frames_are_refused(stages, frames, message):
    with pytest.raises(InputError, match=message):
        measure_closed(stages, frames)


@pytest.mark.parametrize(
    "values",
    [{"frames": 0}, {"rate_hz": 0}, {"rate_hz": float("nan")}, {"policy": "newest"}],
)
def test_wrong_settings_are_refused(values):
    with pytest.raises(InputError):
        MeasureSettings(**values)


def test_a_clock_that_goes_backwards_is_a_defect():
    """Row 111."""
    clock = ManualClock()
    pipeline = Pipeline(clock, network=lambda i: -5 if i == 7 else 20)
    run = measure_paced(pipeline.stages, [None], settings_for(clock, frames=20))
    assert "backwards" in run.find_defects()[0]


def test_the_monotonic_clock_waits_until_the_moment():
    clock = MonotonicClock()
    target = clock.now_ns() + 4 * MS
    clock.wait_until_ns(target)
    assert clock.now_ns() >= target
    clock.wait_until_ns(target - MS)


def test_an_experiment_on_the_real_clock_holds_together():
    settings = MeasureSettings(frames=20, rate_hz=100, warmup_frames=2)
    calls = []
    experiment = run_experiment(
        [Stage("network", lambda x: time.sleep(0.001))],
        [None],
        settings,
        parts=Parts(control=10, closed=20, other=5),
        progress=lambda what, done, total: calls.append((done, total)),
    )
    assert calls == [(done, 5) for done in range(6)]
    assert experiment.paced.count == 20
    assert experiment.pacing_penalty is not None
    assert experiment.other.mode == "latest"
    assert len(experiment.cold[0].first_ns) == 10
    assert 0 < experiment.harness.frame_cost_ns < MS
    assert isinstance(experiment.paced.snapshots[0], Snapshot)
    assert (experiment.paced.latency_ns >= MS).all()
    names = {check.name for check in experiment.environment.checks}
    assert {"steal", "frequency governor", "no-op control, wake-up error"} <= names


@pytest.fixture(scope="module")
def late():
    """Ways to answer before the work is done."""
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as pool, ThreadPool(1) as threads:
        yield {
            "Future": lambda: pool.submit(int),
            "_asyncio.Future": lambda: asyncio.Future(loop=loop),
            "ApplyResult": lambda: threads.apply_async(int),
            "Thread": lambda: Thread(target=int),
            "generator": lambda: (value for value in [1]),
            "map": lambda: map(int, "1"),
        }
        threads.close()
        threads.join()
    loop.close()


async def infer_later():
    """Stands for a network that is run asynchronously."""


@pytest.mark.parametrize(
    "kind", ["Future", "_asyncio.Future", "ApplyResult", "Thread", "generator", "map"]
)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"boxes": 1, "depth": x}, lambda x: [x]])
@pytest.mark.parametrize("warmup_frames", [0, 3])
def test_a_stage_that_returns_before_its_work_is_done_is_refused(late, kind, wrap, warmup_frames):
    """It would look as if it took no time."""
    made = MeasureSettings(frames=5, warmup_frames=warmup_frames, clock=ManualClock())
    stages = [Stage("network", lambda x: wrap(late[kind]()))]
    told = f"stage 'network' returns a {kind.removeprefix('_asyncio.')}, whose work"
    for measure in (measure_closed, measure_paced):
        with pytest.raises(InputError, match=told):
            measure(stages, [0], made)


@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_function_that_makes_a_coroutine_is_refused():
    with pytest.raises(InputError, match="'network' returns a coroutine, whose work"):
        measure_closed([Stage("network", lambda x: infer_later())], [0], MeasureSettings(frames=5))


def test_what_is_looked_at_is_not_what_is_timed():
    """Looking takes time, and goes through the results."""
    looked = []

    class Result(list):
        def __getitem__(self, key):
            looked.append(key)
            return super().__getitem__(key)

    settings = MeasureSettings(frames=50, warmup_frames=3, clock=ManualClock())
    measure_closed([Stage("network", lambda x: Result())], [0], settings)
    assert len(looked) == 3


def test_a_pipeline_that_freezes_the_time_is_measured_all_the_same(monkeypatch):
    for name in ("monotonic_ns", "sleep"):
        monkeypatch.setattr(time, name, lambda *_: 0)
    clock = MonotonicClock()
    before = clock.now_ns()
    clock.wait_until_ns(before + 3_000_000)
    assert clock.now_ns() >= before + 3_000_000


def test_a_clock_that_stands_still_is_an_invalid_machine_and_not_for_ever(monkeypatch):
    monkeypatch.setattr("latency_budget.clock._LOOKS", 1000)
    monkeypatch.setattr(MonotonicClock, "_functions", (lambda: 5, lambda s: None))
    with pytest.raises(UnavailableError, match="the clock stands still") as caught:
        MonotonicClock().wait_until_ns(10)
    assert caught.value.exit_code == 4


def _halve(payload):
    picture = payload["camera"] if isinstance(payload, dict) else payload
    picture *= 0.5
    return payload


@pytest.mark.parametrize(
    ("work", "is_warned"),
    [
        (_halve, True),
        (lambda payload: _halve(copy.deepcopy(payload)), False),
        (lambda payload: payload, False),
    ],
)
@pytest.mark.parametrize("wrap", [lambda picture: picture, lambda picture: {"camera": picture}])
def test_stages_that_write_into_the_frames_are_warned_of(work, is_warned, wrap):
    """The same picture would be darker in each round, and black in the end."""
    settings = MeasureSettings(frames=20, rate_hz=1000, warmup_frames=0)
    pictures = [wrap(np.full((4, 4), 255.0)) for _ in range(12)]
    found = run_experiment(
        [Stage("work", work)], pictures, settings, parts=Parts(control=0, closed=20, other=0)
    )
    told = [check for check in found.environment.checks if check.name == "payloads"]
    assert [check.verdict for check in told] == ["warn"] * is_warned
    assert not told or "into 10 of the first 10" in told[0].detail


@pytest.mark.parametrize(("spend_ms", "frames"), [(1, 300), (70, 300), (150, 200), (50_000, 10)])
def test_slow_frames_are_run_back_to_back_no_longer_than_at_the_cameras_rate(spend_ms, frames):
    clock = ManualClock()
    stages = [Stage("work", lambda x: clock.advance_ns(spend_ms * MS))]
    settings = MeasureSettings(frames=300, rate_hz=100 / 3, warmup_frames=0, clock=clock)
    found = run_experiment(stages, [0], settings, parts=Parts(control=0, closed=300, other=0))
    assert found.closed.count == frames
    assert found.paced.count == 300
