import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from artifacts.errors import InputError
from latency_budget.budget import Budget, FrameBudget
from latency_budget.plan import begin_attempt, make_plan
from latency_budget.run import Run
from latency_budget.statistics import misses_allowed
from latency_budget.tiers import TIERS, Tier
from latency_budget.verdict import Verdict, judge

MS = 1_000_000


def plan_of(budget=None, tier=None, sha256="a" * 64, **how):
    return make_plan(
        budget or Budget(), tier or TIERS["pr"], subject="m.onnx", sha256=sha256, how=how
    )


def test_everything_that_can_change_the_verdict_changes_the_digest():
    plans = [
        plan_of(),
        plan_of(budget=Budget(frame=FrameBudget(deadline_ms=32.9))),
        plan_of(budget=Budget(stages={"network": 20.0})),
        plan_of(tier=TIERS["nightly"]),
        plan_of(sha256="b" * 64),
        plan_of(policy="latest"),
    ]
    assert len({plan.sha256 for plan in plans}) == len(plans)
    assert plan_of().sha256 == plan_of().sha256


def test_attempts_are_counted_per_plan_before_they_begin(tmp_path):
    ledger = tmp_path / "deep" / "attempts.jsonl"
    assert [begin_attempt(plan_of(), ledger).attempt for _ in range(3)] == [1, 2, 3]
    assert begin_attempt(plan_of(sha256="b" * 64), ledger).attempt == 1
    with ledger.open("a") as stream:
        stream.write('{"plan": "torn\n[]\n')
    assert begin_attempt(plan_of(), ledger).attempt == 4
    assert begin_attempt(plan_of(), None).attempt == 1


def test_the_same_claim_in_other_words_is_another_attempt(tmp_path):
    """The same bytes under another name, more frames or a longer warm-up are tried again."""
    ledger, tier = tmp_path / "attempts.jsonl", TIERS["release"]
    first = plan_of(tier=tier, warmup_frames=90)
    again = [
        plan_of(tier=tier, warmup_frames=91),
        plan_of(tier=replace(tier, frames=54_001, restarts=4), warmup_frames=90),
        make_plan(Budget(), tier, subject="copy.onnx", sha256="a" * 64, how={"warmup_frames": 90}),
    ]
    assert len({plan.sha256 for plan in (first, *again)}) == 4
    attempts = [begin_attempt(plan, ledger).attempt for plan in (first, *again, first)]
    assert attempts == [1, 2, 3, 4, 5]
    for other in (
        plan_of(tier=tier, policy="latest"),
        plan_of(tier=replace(tier, confidence=0.999)),
        plan_of(budget=Budget(frame=FrameBudget(deadline_ms=32)), tier=tier),
    ):
        assert begin_attempt(other, ledger).attempt == 1
    pipelines = [make_plan(Budget(), tier, subject=name, sha256="", how={}) for name in "ab"]
    assert [begin_attempt(plan, ledger).attempt for plan in pipelines] == [1, 1]


def test_attempts_that_an_older_version_wrote_count(tmp_path):
    ledger = tmp_path / "attempts.jsonl"
    ledger.write_text(f'{{"plan": "{plan_of().sha256}", "attempt": 1}}\n')
    assert begin_attempt(plan_of(), ledger).attempt == 2


def test_the_first_attempt_survives_a_power_loss_in_a_new_folder(tmp_path, monkeypatch):
    synced, fsync = set(), os.fsync

    def note(descriptor):
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    ledger = tmp_path / "new" / "deep" / "attempts.jsonl"
    begin_attempt(plan_of(), ledger)
    assert {ledger, *list(ledger.parents)[:3]} <= synced


def test_a_ledger_that_cannot_be_written_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match="attempts"):
        begin_attempt(plan_of(), tmp_path / "file" / "attempts.jsonl")


def test_a_ledger_that_only_shows_the_number_does_not_stop_a_measurement(tmp_path, caplog):
    (tmp_path / "file").write_text("kept")
    plan = begin_attempt(plan_of(), tmp_path / "file" / "attempts.jsonl", is_judged=False)
    assert plan.to_dict()["attempt"] is None
    assert "--ledger" in caplog.text
    assert plan.sha256 == plan_of().sha256


def test_a_pass_after_too_many_attempts_proves_nothing():
    run = Run.from_latencies((np.random.default_rng(0).normal(20, 0.2, 1000) * MS).astype(int))
    tier = Tier(frames=1000, attempts=2)
    assert judge(run, Budget(), tier=tier, attempt=2).verdict is Verdict.PASS
    late = judge(run, Budget(), tier=tier, attempt=3)
    assert late.verdict is Verdict.INCONCLUSIVE
    assert "attempt 3 of 2" in str(late.gates)
    uncounted = judge(run, Budget(), tier=tier, attempt=None)
    assert uncounted.verdict is Verdict.PASS
    assert "were not counted" in str(uncounted.gates)


def test_the_error_chance_is_shared_among_the_planned_attempts():
    shared = Tier(frames=1000, attempts=5).spend()
    assert shared.confidence == pytest.approx(0.99)
    assert Tier(frames=1000, attempts=1).spend().confidence == 0.95
    assert TIERS["release"].spend() == replace(TIERS["release"])


def test_the_release_tier_allows_41_misses_for_p999():
    assert misses_allowed(TIERS["release"].frames, 0.999, TIERS["release"].p999_confidence) == 41


def test_attempts_at_once_and_after_a_torn_line_are_counted_each(tmp_path):
    ledger = tmp_path / "attempts.jsonl"
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda _: begin_attempt(plan_of(), ledger).attempt, range(80))
        assert sorted(found) == list(range(1, 81))
    with ledger.open("a") as stream:
        stream.write('{"plan": "torn')
    assert [begin_attempt(plan_of(), ledger).attempt for _ in range(2)] == [81, 82]
