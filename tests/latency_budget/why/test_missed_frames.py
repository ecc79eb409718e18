import gc

import numpy as np

from latency_budget.clock import ManualClock
from latency_budget.measure import MeasureSettings, measure_paced
from latency_budget.run import Run
from latency_budget.stage import Stage
from latency_budget.timed_loop import COUNTERS
from latency_budget.why.missed_frames import (
    DROPPED,
    GC,
    MAJOR_FAULT,
    MINOR_FAULT,
    PREEMPTED,
    QUEUE,
    TOO_SLOW,
    UNKNOWN,
    WAIT,
    explain_misses,
    summarise_misses,
)

DEADLINE_NS = 33_000_000
MS = 1_000_000


def make_run(frames=50, *, slow=(), counters=None, collections=(), stages=("prepare", "network")):
    """Frames of 2 + 18 ms every 33 ms; `slow` adds (frame, stage, ms)."""
    period = 33_333_333
    durations = np.tile(np.array([2 * MS, 18 * MS], np.int64), (frames, 1))
    for frame, stage, extra in slow:
        durations[frame, stages.index(stage)] += int(extra * MS)
    arrival = np.arange(1, frames + 1, dtype=np.int64) * period
    start = arrival.copy()
    for index in range(1, frames):
        start[index] = max(arrival[index], start[index - 1] + durations[index - 1].sum())
    marks = start[:, None] + np.concatenate(
        [np.zeros((frames, 1), np.int64), np.cumsum(durations, axis=1)], axis=1
    )
    grown = np.zeros((frames, len(COUNTERS)), np.int64)
    for frame, name, value in counters or ():
        grown[frame, COUNTERS.index(name)] = value
    return Run(
        mode="fifo",
        rate_hz=30.0,
        stage_names=stages,
        arrival_ns=arrival,
        marks_ns=marks,
        dropped=np.zeros(frames, bool),
        warmup_ns=np.empty(0, np.int64),
        counters=grown,
        collections_ns=tuple(collections),
    )


def test_a_run_without_misses_has_nothing_to_explain():
    assert explain_misses(make_run(), DEADLINE_NS) == ()


def test_the_stage_that_overran_is_named():
    run = make_run(slow=[(7, "network", 20), (20, "prepare", 30)])
    found = explain_misses(run, DEADLINE_NS)
    assert [(miss.index, miss.stage) for miss in found if miss.stage != WAIT] == [
        (7, "network"),
        (20, "prepare"),
    ]
    assert found[0].beyond_ms == 20.0
    assert found[0].causes[0].kind == UNKNOWN


def test_frames_behind_a_stall_are_queued_and_name_its_frame():
    found = explain_misses(make_run(slow=[(10, "network", 100)]), DEADLINE_NS)
    assert found[0].index == 10
    behind = found[1:]
    assert behind
    assert {miss.stage for miss in behind} == {WAIT}
    assert all(miss.causes[0].kind == QUEUE for miss in behind)
    assert all("frame 10" in miss.causes[0].detail for miss in behind)


def test_a_garbage_collection_inside_the_frame_is_the_cause():
    run = make_run(slow=[(5, "network", 25)])
    begin = int(run.start_ns[5]) + 4 * MS
    collections = ((begin, begin + 24 * MS), (1, 2))
    found = explain_misses(
        make_run(slow=[(5, "network", 25)], collections=collections), DEADLINE_NS
    )
    assert found[0].causes[0].kind == GC
    assert found[0].causes[0].lost_ms == 24.0
    assert all(miss.causes[0].kind != GC for miss in found[2:])


def test_counters_name_preemption_and_page_faults():
    run = make_run(
        slow=[(5, "network", 18), (15, "network", 18), (25, "network", 18)],
        counters=[
            (5, "involuntary_switches", 3),
            (5, "wait_ns", 17 * MS),
            (15, "major_faults", 4),
            (25, "minor_faults", 5000),
        ],
    )
    kinds = {miss.index: miss.causes[0].kind for miss in explain_misses(run, DEADLINE_NS)}
    assert kinds[5] == PREEMPTED
    assert kinds[15] == MAJOR_FAULT
    assert kinds[25] == MINOR_FAULT


def test_an_event_that_takes_no_time_explains_nothing():
    run = make_run(
        slow=[(5, "network", 18)],
        counters=[(5, "involuntary_switches", 1), (5, "wait_ns", 1000), (5, "minor_faults", 3)],
    )
    assert explain_misses(run, DEADLINE_NS)[0].causes[0].kind == UNKNOWN


def test_dropped_frames_say_what_overtook_them():
    clock = ManualClock()
    slow = iter([20] * 5 + [90] + [20] * 40)

    def network(payload):
        clock.advance_ns(next(slow) * MS)
        return payload

    settings = MeasureSettings(frames=20, warmup_frames=0, policy="latest", clock=clock)
    run = measure_paced([Stage("network", network)], [None], settings)
    found = explain_misses(run, DEADLINE_NS)
    dropped = [miss for miss in found if miss.stage == DROPPED]
    assert len(dropped) == run.dropped.sum() > 0
    assert all(miss.latency_ms is None and miss.causes[0].kind == QUEUE for miss in dropped)
    assert "frame 5" in dropped[0].causes[0].detail


def test_a_real_collection_in_a_real_frame_is_found():
    garbage = []

    def network(payload):
        if payload == 3:
            garbage.extend([[index] for index in range(400_000)])
            gc.collect()
        return payload

    run = measure_paced(
        [Stage("network", network)], list(range(8)), MeasureSettings(frames=8, warmup_frames=0)
    )
    took = int(run.latency_ns[3])
    found = {miss.index: miss for miss in explain_misses(run, took // 2)}
    assert GC in {cause.kind for cause in found[3].causes}


def test_the_summary_counts_stages_and_causes():
    misses = explain_misses(make_run(slow=[(10, "network", 100)]), DEADLINE_NS)
    summary = summarise_misses(misses)
    assert summary["count"] == len(misses) == sum(summary["by_stage"].values())
    assert sum(summary["by_cause"].values()) == len(misses)
    assert summary["frames"][0]["frame"] == 10


def test_recorded_whole_frames_without_stages_are_explained_too():
    latency = np.full(20, 20 * MS)
    latency[4] = 50 * MS
    found = explain_misses(Run.from_latencies(latency), DEADLINE_NS)
    assert [(miss.index, miss.stage) for miss in found] == [(4, "frame")]


def test_a_pipeline_that_is_always_too_slow_blames_its_longest_stage():
    run = make_run(slow=[(frame, "network", 20) for frame in range(50)])
    found = explain_misses(run, DEADLINE_NS)
    assert len(found) == 50
    assert {(miss.stage, miss.causes[0].kind) for miss in found} == {("network", TOO_SLOW)}
