import sys
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from latency_budget.clock import ManualClock, MonotonicClock
from latency_budget.measure import MeasureSettings, measure_closed, measure_paced
from latency_budget.stage import Stage
from latency_budget.timed_loop import COUNTERS, LOOPS, Recording, TimedLoop

MS = 1_000_000


class StepClock(ManualClock):
    """Moves by a microsecond at every look, so that latest and fifo make progress."""

    def now_ns(self):
        self.advance_ns(1000)
        return super().now_ns()


def make_loop(frames, stages=3):
    recording = Recording.allocate(frames, stages)
    steps = [Stage(str(i), lambda payload: payload) for i in range(stages)]
    loop = TimedLoop(steps, [None], StepClock(), recording)
    loop.schedule(2000 * MS, Fraction(1000))
    return loop, recording


def count_left_behind(mode):
    """Returns the blocks that 2000 frames leave alive, their bytes, and the bytes at the peak."""
    loop, recording = make_loop(3000)
    LOOPS[mode](loop, 0, 1000)
    tracemalloc.start()
    before = sys.getallocatedblocks()
    LOOPS[mode](loop, 1000, 3000)
    grown = sys.getallocatedblocks() - before
    current, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    loop.close()
    assert (recording.marks_ns >= 0).all()
    return grown, current, peak


@pytest.mark.parametrize("mode", list(LOOPS))
def test_the_timed_loop_leaves_no_allocation_behind(mode):
    """Blocks alive after 2000 frames are those alive before them, and the peak is a few frames'.

    The least of three: threads that other tests left in this process allocate too, now and then.
    """
    grown, current, peak = min(count_left_behind(mode) for _ in range(3))
    assert grown < 50
    assert current < 4000
    assert peak < 8000


def test_the_check_for_allocations_can_fail():
    held = []
    recording = Recording.allocate(3000, 1)
    loop = TimedLoop([Stage("hoard", lambda x: held.append([0]))], [None], StepClock(), recording)
    before = sys.getallocatedblocks()
    loop.run_closed(0, 3000)
    assert sys.getallocatedblocks() - before > 2000
    loop.close()


def test_counters_grow_by_what_a_frame_did():
    pages = []

    def touch(index):
        if index == 5:
            pages.append(np.ones(50 << 18))

    run = measure_closed(
        [Stage("touch", touch)], range(10), MeasureSettings(frames=10, warmup_frames=0)
    )
    faults = run.counts_of("minor_faults")
    assert run.counters.shape == (10, len(COUNTERS))
    assert faults[5] > 20
    assert faults[5] == faults.max()


def test_a_backwards_clock_does_not_stop_the_latest_loop():
    clock = ManualClock()
    seen = []

    def work(payload):
        seen.append(payload)
        clock.advance_ns(-20 * MS if len(seen) == 5 else 10 * MS)

    settings = MeasureSettings(frames=20, warmup_frames=0, policy="latest", clock=clock)
    run = measure_paced([Stage("work", work)], range(20), settings)
    assert len(seen) + run.dropped.sum() == 20
    assert run.find_defects()


def test_a_stop_rule_ends_the_run_and_keeps_its_frames():
    clock = ManualClock()
    looks = []

    def stop(latencies):
        looks.append(len(latencies))
        return len(latencies) >= 60

    settings = MeasureSettings(frames=1000, warmup_frames=0, clock=clock, stop=stop)
    run = measure_paced([Stage("work", lambda x: clock.advance_ns(MS))], [None], settings)
    assert run.count == 60
    assert looks == [30, 60]
    assert (run.latency_ns == MS).all()


@pytest.mark.timing
def test_the_harness_costs_less_than_twenty_microseconds():
    """Median over no-op frames; the best of five, so that a busy machine does not decide."""
    costs = []
    for _ in range(5):
        settings = MeasureSettings(frames=500, warmup_frames=200, clock=MonotonicClock())
        run = measure_closed([Stage("no-op", lambda x: x)], [None], settings)
        costs.append(float(np.median(np.diff(run.start_ns))))
    assert min(costs) < 20_000


@pytest.mark.parametrize("is_urgent", [False, True])
def test_back_to_back_frames_rest_only_with_realtime_priority(monkeypatch, is_urgent):
    """The rest lies between frames: it is long enough for Linux and in no frame's latency."""
    monkeypatch.setattr("latency_budget.timed_loop.is_realtime", lambda: is_urgent)
    clock = ManualClock()
    recording = Recording.allocate(40, 1)
    loop = TimedLoop([Stage("work", lambda x: clock.advance_ns(24 * MS))], [None], clock, recording)
    before = clock.now_ns()
    loop.run_closed(0, 40)
    loop.close()
    busy = recording.marks_ns[:, 1] - recording.marks_ns[:, 0]
    assert (busy == 24 * MS).all()
    idle_share = 1 - busy.sum() / (clock.now_ns() - before)
    assert idle_share == pytest.approx(1 / 13 if is_urgent else 0, abs=1e-6)
    assert idle_share > 0.05 or not is_urgent
