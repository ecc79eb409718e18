from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from latency_budget.budget import Budget, FrameBudget, HeadContract
from latency_budget.environment import Check, Environment, judge_environment
from latency_budget.gate import judge_percentile
from latency_budget.jitter_gate import judge_jitter
from latency_budget.run import Run
from latency_budget.sensors import Snapshot, describe_machine, read_snapshot
from latency_budget.stage_gates import judge_stages_together
from latency_budget.statistics import bound_ns
from latency_budget.tiers import Tier
from latency_budget.verdict import HeadQuality, Verdict, judge

MS = 1_000_000
QUIET = Environment((Check("steal", "ok", "0 %"),))


def run_of(latency_ms, **values):
    return Run.from_latencies((np.asarray(latency_ms) * MS).astype(np.int64), **values)


def noisy(n=1000, centre=20.0, seed=3):
    return np.random.default_rng(seed).normal(centre, 0.3, n)


def gate(judgement, name):
    return next(found for found in judgement.gates if found.name == name)


def test_a_fast_and_even_run_passes():
    judgement = judge(run_of(noisy()), Budget(), environment=QUIET)
    assert judgement.verdict is Verdict.PASS
    assert judgement.verdict.exit_code == 0
    assert "headroom" in gate(judgement, "frame P99").detail


def test_a_slow_run_fails():
    judgement = judge(run_of(noisy(centre=42)), Budget(), environment=QUIET)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.verdict.exit_code == 1
    assert gate(judgement, "consecutive misses").verdict is Verdict.FAIL


def test_two_percent_at_twice_the_time_fail():
    """Row 104."""
    latency = noisy(3000)
    latency[::50] = 40
    judgement = judge(run_of(latency), Budget(), environment=QUIET)
    assert gate(judgement, "frame P99").verdict is Verdict.FAIL


def test_a_hundred_frames_prove_nothing():
    """Row 107."""
    judgement = judge(run_of(noisy(100)), Budget(), environment=QUIET)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.verdict.exit_code == 3
    assert "199 more frames" in gate(judgement, "frame P99").detail
    assert "268 more frames" in gate(judgement, "jitter P99/P50").detail


@pytest.mark.parametrize("late_ns", [0, 1])
def test_a_frame_that_takes_just_as_long_as_it_may_is_no_miss(late_ns):
    latency = np.full(1000, 20 * MS)
    latency[:30] = 33 * MS + late_ns
    found = judge_percentile("P99", latency, 33 * MS, 0.95)
    assert found.verdict is (Verdict.FAIL if late_ns else Verdict.PASS)
    assert f"{30 if late_ns else 0} of 1000 frames over 33.00 ms (4 allowed)" in found.detail
    assert ("headroom 0.00 ms" in found.detail) != bool(late_ns)


def test_bursts_that_prove_no_fail_are_named():
    latency = np.full(3000, 20 * MS)
    latency[100:160] = 40 * MS
    assert judge_percentile("P99", latency, 33 * MS, 0.95).verdict is Verdict.FAIL
    found = judge_percentile("P99", latency, 33 * MS, 0.95, in_bursts=True)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "they come in bursts, so 0.1" in found.detail
    assert judge_percentile("P99", latency[:0], 33 * MS, 0.95).verdict is Verdict.INCONCLUSIVE


def test_dropped_frames_are_misses_however_fast_the_rest_is():
    """Row 110."""
    dropped = np.zeros(1000, bool)
    dropped[::40] = True
    judgement = judge(run_of(noisy(), dropped=dropped), Budget(), environment=QUIET)
    assert gate(judgement, "frame P99").verdict is Verdict.FAIL
    assert "too many frames were dropped" in gate(judgement, "jitter P99/P50").detail
    everything = judge(run_of(noisy(), dropped=~dropped), Budget(), environment=QUIET)
    assert everything.verdict is Verdict.FAIL


@pytest.mark.parametrize("bad_ms", [0.0, -3.0])
def test_impossible_latencies_make_the_run_invalid(bad_ms):
    """Row 111."""
    latency = noisy()
    latency[17] = bad_ms
    judgement = judge(run_of(latency), Budget(), environment=QUIET)
    assert judgement.verdict is Verdict.INVALID
    assert judgement.verdict.exit_code == 4


def test_an_empty_run_is_invalid():
    assert judge(run_of([]), Budget()).verdict is Verdict.INVALID


def test_a_disturbed_machine_outranks_a_failure_unless_only_reported():
    disturbed = Environment((Check("steal", "invalid", "5 %"), Check("PSI", "unknown", "no")))
    slow = run_of(noisy(centre=42))
    assert judge(slow, Budget(), environment=disturbed).verdict is Verdict.INVALID
    reported = judge(slow, Budget(environment="report"), environment=disturbed)
    assert reported.verdict is Verdict.FAIL
    assert "steal" in gate(reported, "environment").detail


def test_strict_refuses_what_it_cannot_read():
    blind = Environment((Check("PSI", "unknown", "no"),))
    assert judge(run_of(noisy()), Budget(), environment=blind).verdict is Verdict.PASS
    strict = Budget(environment="strict")
    assert judge(run_of(noisy()), strict, environment=blind).verdict is Verdict.INVALID
    assert judge(run_of(noisy()), strict).verdict is Verdict.INVALID


def test_fail_outranks_inconclusive():
    judgement = judge(run_of(noisy(100, centre=42)), Budget(), environment=QUIET)
    assert gate(judgement, "jitter P99/P50").verdict is Verdict.INCONCLUSIVE
    assert judgement.verdict is Verdict.FAIL


def test_jitter_alone_can_fail():
    latency = noisy(3000, centre=10)
    latency[::20] = 20
    judgement = judge(run_of(latency), Budget(), environment=QUIET)
    assert gate(judgement, "frame P99").verdict is Verdict.PASS
    assert judgement.verdict is Verdict.FAIL


def test_stages_are_judged_each_on_its_own():
    total = noisy(2000, centre=25)
    stages = {
        "network": (total * 0.8 * MS).astype(np.int64),
        "plan": (total * 0.1 * MS).astype(int),
    }
    budget = Budget(stages={"network": 18.0, "plan": 4.0, "tracking": 2.0})
    judgement = judge(run_of(total, stages_ns=stages), budget, environment=QUIET)
    assert gate(judgement, "stage network P99").verdict is Verdict.FAIL
    assert gate(judgement, "stage plan P99").verdict is Verdict.PASS
    assert "P99.67 proven" in gate(judgement, "stage plan P99").detail
    assert gate(judgement, "stage tracking P99").verdict is Verdict.INCONCLUSIVE
    assert "measured stages: network, plan" in gate(judgement, "stage tracking P99").detail


def test_stages_longer_than_their_frame_are_a_defect():
    stages = {"network": np.full(400, 30 * MS)}
    judgement = judge(run_of(np.full(400, 20.0), stages_ns=stages), Budget())
    assert judgement.verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("metric", "before", "after", "verdict"),
    [
        ("mAP50", 0.700, 0.695, Verdict.PASS),
        ("mAP50", 0.700, 0.689, Verdict.FAIL),
        ("mAP50", 0.700, 0.800, Verdict.PASS),
        ("abs_rel", 0.100, 0.105, Verdict.PASS),
        ("abs_rel", 0.100, 0.115, Verdict.FAIL),
        ("abs_rel", 0.100, 0.050, Verdict.PASS),
        ("mAP50", 0.700, float("nan"), Verdict.FAIL),
        ("rmse_log", 0.100, 0.115, Verdict.FAIL),
        ("minADE", 0.100, 0.050, Verdict.PASS),
        ("bbox_mAP50-95", 0.700, 0.689, Verdict.FAIL),
    ],
)
def test_heads_keep_their_contracts_in_the_right_direction(metric, before, after, verdict):
    budget = Budget(heads={"a": HeadContract(metric=metric, max_drop=0.01)})
    heads = {"a": HeadQuality(metric, before, after)}
    judgement = judge(run_of(noisy()), budget, environment=QUIET, heads=heads)
    assert gate(judgement, f"head a {metric}").verdict is verdict


@pytest.mark.parametrize(("lower", "verdict"), [(True, Verdict.FAIL), (False, Verdict.PASS)])
def test_a_metric_of_ones_own_counts_as_the_budget_says(lower, verdict):
    contract = HeadContract(metric="badness", max_drop=0.01, lower_is_better=lower)
    heads = {"a": HeadQuality("badness", 0.1, 0.2)}
    judgement = judge(run_of(noisy()), Budget(heads={"a": contract}), heads=heads)
    assert gate(judgement, "head a badness").verdict is verdict


def test_a_contract_without_a_measured_quality_is_no_pass():
    budget = Budget(heads={"a": HeadContract(metric="mIoU", max_drop=0.01)})
    assert judge(run_of(noisy()), budget, environment=QUIET).verdict is Verdict.INCONCLUSIVE
    other = {"a": HeadQuality("mAP50", 0.5, 0.5)}
    assert judge(run_of(noisy()), budget, heads=other).verdict is Verdict.INCONCLUSIVE


def test_the_cluster_rule_refuses_what_the_independent_claim_passes():
    latency = noisy(18_000)
    for start in range(0, 18_000, 1500):
        latency[start : start + 12] = 50
    budget = Budget(frame=FrameBudget(max_consecutive_misses=30))
    independent = judge(run_of(latency), budget, environment=QUIET)
    assert gate(independent, "frame P99").verdict is Verdict.PASS
    tier = Tier(frames=18_000, rule="cluster")
    clustered = judge(run_of(latency), budget, tier=tier, environment=QUIET)
    assert gate(clustered, "P99 in bursts").verdict is Verdict.INCONCLUSIVE
    assert clustered.verdict is Verdict.INCONCLUSIVE


def test_the_sequential_rule_cannot_pass_what_later_frames_refute():
    latency = noisy(1000)
    latency[900:940] = 60
    tier = Tier(frames=1000, rule="sprt")
    late = judge(run_of(latency), Budget(), tier=tier, environment=QUIET)
    assert gate(late, "frame P99").verdict is Verdict.FAIL
    clean = judge(run_of(noisy(1000)), Budget(), tier=tier, environment=QUIET)
    assert "decided after 373 frames" in gate(clean, "frame P99").detail


def test_misses_of_two_processes_are_not_consecutive():
    latency = noisy(2000)
    latency[998:1002] = 60
    joined = replace(run_of(latency), origins=(0, 1000))
    for run, verdict in ((run_of(latency), Verdict.FAIL), (joined, Verdict.PASS)):
        found = gate(judge(run, Budget(), environment=QUIET), "consecutive misses")
        assert found.verdict is verdict


def test_few_frames_that_fail_for_jitter_are_not_called_dropped():
    latency = noisy(60)
    latency[::3] = 60
    found = gate(judge(run_of(latency), Budget(), environment=QUIET), "jitter P99/P50")
    assert found.verdict is Verdict.FAIL
    assert "at least" in found.detail
    assert "dropped" not in found.detail


@pytest.mark.parametrize(("every", "is_told"), [(1, True), (2, False)])
def test_jitter_of_frames_one_after_another_is_told_as_such(every, is_told):
    """A processor that a host took away for a third of a second, or as many single frames."""
    latency = noisy(1000)
    latency[364 : 364 + 11 * every : every] = 30
    found = gate(judge(run_of(latency), Budget(), environment=QUIET), "jitter P99/P50")
    assert found.verdict is not Verdict.PASS
    told = "11 of the 11 frames above"
    assert (told in found.detail and "came one after another" in found.detail) is is_told


def test_a_fail_of_the_first_frames_does_not_stand_against_all():
    """A warm-up that was left in a recording: 4 late frames, then 1976 on time."""
    latency = noisy(1980)
    latency[:4] = 60
    tier = Budget().tier("pr")
    found = gate(judge(run_of(latency), Budget(), tier=tier, environment=QUIET), "frame P99")
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "leave warm-up out" in found.detail
    latency[500:512] = 60
    found = gate(judge(run_of(latency), Budget(), tier=tier, environment=QUIET), "frame P99")
    assert found.verdict is Verdict.FAIL
    assert "found a fail after 2 frames (2 missed)" in found.detail


def test_a_sequential_test_that_turns_is_no_proven_fail():
    """Four of 430 frames late, all others on time: P99 is within the deadline."""
    latency = noisy(1980)
    latency[[50, 170, 290, 410]] = 60
    found = judge(run_of(latency), Budget(), tier=Budget().tier("pr"), environment=QUIET)
    assert gate(found, "frame P99").verdict is Verdict.INCONCLUSIVE
    assert "ruled out a pass after 411 frames (4 missed" in gate(found, "frame P99").detail
    latency[60:80] = 60
    worse = judge(run_of(latency), Budget(), tier=Budget().tier("pr"), environment=QUIET)
    assert gate(worse, "frame P99").verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("latest_ms", "digits", "verdict"),
    [
        (33, 0, Verdict.INCONCLUSIVE),  # 33.9 ms, cut off
        (32, 0, Verdict.PASS),
        (34, 0, Verdict.FAIL),
        (33, 2, Verdict.INCONCLUSIVE),
        (32.9, 2, Verdict.PASS),
        (33.1, 2, Verdict.FAIL),
    ],
)
def test_what_a_coarse_clock_cannot_tell_is_not_proven(latest_ms, digits, verdict):
    latency = noisy(3000, centre=30).clip(0, 31).round(digits)
    latency[::20] = latest_ms
    run = run_of(latency, stages_ns={"network": (latency * MS).round().astype(np.int64)})
    budget = Budget(frame=FrameBudget(p99_over_p50=2), stages={"network": 33.0})
    found = judge(run, budget, environment=QUIET)
    for name in ("frame P99", "stage network P99"):
        assert gate(found, name).verdict is verdict
        assert ("written in steps of" in gate(found, name).detail) == (verdict == "inconclusive")


@pytest.mark.parametrize(("time_ms", "verdict"), [(33, "inconclusive"), (32, "pass"), (34, "fail")])
def test_equal_times_of_a_coarse_clock_are_no_exact_ones(time_ms, verdict):
    """Frames that wait for a display at 30 Hz take 33.33 ms, and are written as 33 each."""
    run = Run.from_latencies(np.full(2000, time_ms * MS))
    gates = {gate.name: gate.verdict for gate in judge(run, Budget()).gates}
    assert gates["frame P99"] == verdict


def test_jitter_of_a_coarse_clock_is_bounded_by_its_steps():
    """5 ms of a millisecond clock may be 4.1 or 5.9 ms: a ratio of 1.2 cannot be seen."""
    latency = noisy(3000, centre=5.4)
    fine = gate(judge(run_of(latency), Budget(), environment=QUIET), "jitter P99/P50")
    coarse = gate(judge(run_of(latency.round()), Budget(), environment=QUIET), "jitter P99/P50")
    assert fine.verdict is Verdict.PASS
    assert coarse.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("bursts", "independent"), [(2, Verdict.PASS), (4, Verdict.FAIL)])
def test_jitter_of_a_few_long_bursts_is_not_proven_by_the_cluster_rule(bursts, independent):
    latency = noisy(18_000)
    for start in range(bursts):
        latency[2000 + 4000 * start :][:60] = 28
    run, budget = run_of(latency), Budget()
    found = gate(judge(run, budget, environment=QUIET), "jitter P99/P50")
    assert found.verdict is independent
    careful = judge(run, budget, tier=Tier(frames=18_000, rule="cluster"), environment=QUIET)
    assert gate(careful, "jitter P99/P50").verdict is Verdict.INCONCLUSIVE
    assert "in bursts" in gate(careful, "jitter P99/P50").detail


@pytest.mark.parametrize(("every", "verdict"), [(400, Verdict.PASS), (40, Verdict.FAIL)])
def test_jitter_of_single_slow_frames_is_proven_by_the_cluster_rule(every, verdict):
    latency = noisy(18_000)
    latency[::every] = 28
    tier = Tier(frames=18_000, rule="cluster")
    judgement = judge(run_of(latency), Budget(), tier=tier, environment=QUIET)
    assert gate(judgement, "jitter P99/P50").verdict is verdict


@pytest.mark.parametrize("outcome", [Verdict.PASS, Verdict.FAIL])
def test_jitter_in_bursts_is_judged_from_the_end_of_p50_s_bound_that_leaves_doubt(outcome):
    """Frames between 1.2 times either end of P50's bound: for a pass slow, for a fail not."""
    latency = np.random.default_rng(0).permutation(np.linspace(20, 22, 18_000))
    is_between = np.zeros(18_000, bool)
    if outcome is Verdict.PASS:
        is_between[3000:3060] = is_between[9000:9060] = True
    else:
        is_between[::30] = True
        latency[3001:3300] = 28
    latency[is_between] = 25
    ordered = np.sort((latency * MS).astype(np.int64))
    low, high = (bound_ns(ordered, 0.5, 0.975, upper=upper) for upper in (False, True))
    latency[is_between] = 1.2 * (low + high) / 2 / MS
    run, frame = run_of(latency), FrameBudget()
    assert judge_jitter(run, frame).verdict is outcome
    found = judge_jitter(run, frame, in_bursts=True)
    assert found.verdict is Verdict.INCONCLUSIVE
    edge_ns = 1.2 * (low if outcome is Verdict.PASS else high)
    assert f"frames above {edge_ns / MS:.2f} ms" in found.detail


def test_a_p99_close_above_p50_keeps_the_jitter_limit_of_fast_networks():
    latency = noisy(3000, centre=20) / 10
    latency[::20] = 2.6
    run = run_of(latency)
    assert judge_jitter(run, FrameBudget()).verdict is Verdict.FAIL
    assert judge_jitter(run, FrameBudget(jitter_floor_ms=0.5)).verdict is Verdict.FAIL
    found = judge_jitter(run, FrameBudget(jitter_floor_ms=0.7))
    assert found.verdict is Verdict.PASS
    assert found.detail.startswith("P99/P50 = 1.298 ")
    assert "(P99 - P50 = 0.60 ms)" in found.detail


def test_a_few_long_bursts_are_no_proven_fail_by_the_cluster_rule():
    latency = noisy(18_000)
    for start in (1000, 4000, 9000, 15_000):
        latency[start : start + 60] = 50
    budget = Budget(frame=FrameBudget(max_consecutive_misses=60), stages={"network": 33.0})
    run = run_of(latency)
    independent = judge(run, budget, environment=QUIET)
    assert gate(independent, "frame P99").verdict is Verdict.FAIL
    tier = Tier(frames=18_000, rule="cluster")
    clustered = judge(run, budget, tier=tier, environment=QUIET)
    assert gate(clustered, "frame P99").verdict is Verdict.INCONCLUSIVE
    assert "more frames without a miss needed" in gate(clustered, "P99 in bursts").detail
    always = judge(run_of(noisy(18_000, centre=40)), budget, tier=tier, environment=QUIET)
    assert gate(always, "frame P99").verdict is Verdict.FAIL


def test_the_release_tier_claims_p999_too():
    tier = Budget().tier("release")
    judgement = judge(run_of(noisy(2000)), Budget(), tier=tier, environment=QUIET)
    assert "995 more frames" in gate(judgement, "frame P99.9").detail


def test_a_baseline_catches_a_slower_build():
    base = (noisy(2000) * MS).astype(np.int64)
    slower = judge(run_of(noisy(2000, centre=22)), Budget(), environment=QUIET, baseline_ns=base)
    assert gate(slower, "no slower than before").verdict is Verdict.FAIL
    same = judge(run_of(noisy(2000, seed=9)), Budget(), environment=QUIET, baseline_ns=base)
    assert same.verdict is Verdict.PASS


SNAPSHOT = Snapshot(0, 0, 0, 10_000, 0, {"cpu": 1.0, "io": 0.0, "memory": 0.0}, 0, 0, 0, 0, 0)


def paced_run(n=400, late_ns=10_000, **values):
    arrival = np.arange(1, n + 1, dtype=np.int64) * 33_333_333
    start = arrival + late_ns
    marks = np.stack([start, start + 20 * MS], axis=1)
    return Run(
        mode="fifo",
        rate_hz=30,
        stage_names=("network",),
        arrival_ns=arrival,
        marks_ns=marks,
        dropped=np.zeros(n, bool),
        warmup_ns=np.empty(0, np.int64),
        **values,
    )


@pytest.mark.parametrize(
    ("change", "name", "verdict"),
    [
        ({}, "steal", "ok"),
        ({"involuntary_switches": 100, "wait_ns": None}, "involuntary switches", "invalid"),
        ({"involuntary_switches": 20}, "involuntary switches", "warn"),
        ({"steal_ticks": 500, "total_ticks": 20_000}, "steal", "invalid"),
        ({"involuntary_switches": 100, "wait_ns": 1000}, "involuntary switches", "ok"),
        ({"wait_ns": 10**9}, "waiting for a processor", "invalid"),
        ({"wait_ns": 10**8}, "waiting for a processor", "warn"),
        ({"wait_ns": 10**6}, "waiting for a processor", "ok"),
        ({"wait_ns": None}, "waiting for a processor", "unknown"),
        ({"busy_ticks": 6000, "own_ticks": 1000}, "other processes", "warn"),
        (
            {"busy_ticks": 6000, "own_ticks": 1000, "wait_ns": 10**9},
            "other processes",
            "invalid",
        ),
        ({"helpers_wait_ns": 8 * 10**9}, "runtime threads waiting", "invalid"),
        ({"busy_ticks": 6000, "own_ticks": 5900}, "other processes", "ok"),
        ({"swapped_pages": 5}, "swapping", "invalid"),
        ({"major_faults": 1}, "major page faults", "invalid"),
        ({"throttle_count": 1}, "thermal throttling", "invalid"),
        ({"throttle_count": None}, "thermal throttling", "unknown"),
        (
            {"pressure": {"cpu": 60.0, "io": None, "memory": 6.0}, "wait_ns": 10**9},
            "pressure, cpu",
            "invalid",
        ),
        ({"pressure": {"cpu": 60.0, "io": None, "memory": 6.0}}, "pressure, io", "unknown"),
        ({"pressure": {"cpu": 60.0, "io": None, "memory": 6.0}}, "pressure, memory", "warn"),
    ],
)
def test_counters_are_judged_by_their_thresholds(tmp_path, change, name, verdict):
    run = paced_run(snapshots=(SNAPSHOT, replace(SNAPSHOT, **{"total_ticks": 20_000} | change)))
    environment = judge_environment(run, [np.full(180, 5_000)], root=tmp_path)
    assert next(c for c in environment.checks if c.name == name).verdict == verdict


def test_late_wakeups_of_the_control_make_it_invalid_but_a_single_one_only_warns(tmp_path):
    control = np.full(180, 5_000)
    assert judge_environment(paced_run(), [control], root=tmp_path).verdict == "ok"
    control[5] = 3 * MS
    assert judge_environment(paced_run(), [control], root=tmp_path).verdict == "warn"
    control[6] = 3 * MS
    assert judge_environment(paced_run(), [control], root=tmp_path).verdict == "invalid"


def test_a_process_that_stood_still_is_invalid(tmp_path):
    """Row 109: stopped for 500 ms while it waited for a frame."""
    run = paced_run()
    run.marks_ns[200] += 500 * MS
    run.marks_ns[201:216] = run.marks_ns[200]
    environment = judge_environment(run, [np.full(180, 5_000)], root=tmp_path)
    assert environment.verdict == "invalid"
    assert "stood still for 500.0 ms" in str(environment.checks)


def test_sensors_read_what_there_is_and_say_what_is_not(tmp_path):
    empty = read_snapshot(tmp_path)
    assert empty.steal_ticks is None
    assert empty.pressure == {"cpu": None, "io": None, "memory": None}
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/thread-self").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  10 0 5 80 1 0 1 3 0 0\ncpu0 1 2\n")
    (tmp_path / "proc/pressure/cpu").write_text(
        "some avg10=12.50 avg60=0.00 total=1\nfull avg10=0\n"
    )
    (tmp_path / "proc/pressure/io").write_text("garbage\n")
    (tmp_path / "proc/thread-self/status").write_text("nonvoluntary_ctxt_switches:\t42\n")
    (tmp_path / "proc/cpuinfo").write_text("processor: 0\nmodel name\t: Test CPU\n")
    full = read_snapshot(tmp_path)
    assert (full.steal_ticks, full.total_ticks, full.involuntary_switches) == (3, 100, 42)
    assert full.pressure["cpu"] == 12.5
    assert full.pressure["io"] is None
    assert describe_machine(tmp_path)["processor"] == "Test CPU"


def test_governor_and_clock_source_are_reported(tmp_path):
    cpu = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    cpu.mkdir(parents=True)
    (cpu / "scaling_governor").write_text("powersave\n")
    clock = tmp_path / "sys/devices/system/clocksource/clocksource0"
    clock.mkdir(parents=True)
    (clock / "current_clocksource").write_text("hpet\n")
    environment = judge_environment(paced_run(collections_ns=((1, 2), (3, 4))), root=tmp_path)
    verdicts = {check.name: check.verdict for check in environment.checks}
    assert verdicts["frequency governor"] == "warn"
    assert verdicts["clock source"] == "warn"
    assert verdicts["garbage collections"] == "warn"
    assert verdicts["no-op control, wake-up error"] == "unknown"


STAGES_TIER = Tier(frames=4000, stages_imply_frame=True)


@pytest.mark.parametrize(
    ("wait_ms", "dropped_every", "budgets", "reason"),
    [
        (0.1, 0, {"a": 10.0, "b": 10.0}, ""),
        (20.0, 0, {"a": 10.0, "b": 10.0}, "4000 frames late with every stage within its budget"),
        (0.1, 2, {"a": 10.0, "b": 10.0}, "a: 2000 over, no bound"),
        (0.1, 0, {"a": 10.0}, "b has no budget"),
    ],
)
def test_stages_imply_only_the_frame_that_they_make_up(wait_ms, dropped_every, budgets, reason):
    a, b = noisy(4000, 8, seed=1), noisy(4000, 8, seed=2)
    dropped = np.arange(4000) % dropped_every == 0 if dropped_every else None
    stages = {name: (np.asarray(ms) * MS).astype(np.int64) for name, ms in (("a", a), ("b", b))}
    run = run_of(a + b + wait_ms, stages_ns=stages, dropped=dropped)
    found = gate(judge(run, Budget(stages=budgets), tier=STAGES_TIER), "stages imply the frame")
    assert found.verdict is (Verdict.INCONCLUSIVE if reason else Verdict.PASS)
    assert reason in found.detail


@pytest.mark.parametrize("over", [0, 3])
@pytest.mark.parametrize("missing", [0, 1])
def test_each_of_two_stages_is_proven_at_half_of_the_frame_s_error_chance(over, missing):
    # 1 - 0.01 / 2 and 1 - 0.05 / 2, by scipy's binomial distribution.
    counts = np.arange(over + 1, 9999)
    needed = counts[stats.binom.cdf(over, counts, 0.005) <= 0.025][0]
    frames = needed - missing
    a, b = np.full(frames, 10 * MS), np.full(frames, 20 * MS)
    a[:over] += 1
    run = Run.from_latencies(a + b, stages_ns={"a": a, "b": b})
    budget = Budget(stages={"a": 10.0, "b": 20.0})
    found = judge_stages_together(run, budget, STAGES_TIER)
    assert found.verdict is (Verdict.INCONCLUSIVE if missing else Verdict.PASS)
    assert "each of 2 stages at P99.5, 97.5 % confidence" in found.detail
    if missing:
        assert f"a: {over} over, " in found.detail
        assert f"{needed} frames needed" in found.detail
        assert ("b: " in found.detail) == (over == 0)


@pytest.mark.parametrize("is_over", [True, False])
def test_a_late_frame_whose_stage_was_over_its_budget_is_no_riddle(is_over):
    a, wait = np.full(4000, 8 * MS), np.zeros(4000, np.int64)
    (a if is_over else wait)[1000] = 40 * MS
    run = Run.from_latencies(a + wait, stages_ns={"a": a})
    found = judge_stages_together(run, Budget(stages={"a": 10.0}), STAGES_TIER)
    assert found.verdict is (Verdict.PASS if is_over else Verdict.INCONCLUSIVE)
    assert ("1 frames late" in found.detail) != is_over
