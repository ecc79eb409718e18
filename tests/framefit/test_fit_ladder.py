"""Which rung of `framefit fit` is taken, on networks whose latencies are known."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from artifacts.errors import MissingExtraError
from compress.errors import FastEnoughError, LatencyError
from framefit.commands.fit import show_outcome
from framefit.fit_job import FitOutcome
from framefit.fit_ladder import LATENCY_GATES, MEASUREMENTS, Tried, climb
from latency_budget.gate import Gate, Verdict

LIMIT_MS = 20.0


@dataclass
class FakeVariant:
    details: dict
    frame_ms: dict
    network_ms: dict | None = None


@dataclass
class FakeReport:
    gates: tuple
    variants: tuple
    verdict: Verdict


@dataclass
class FakeWorkshop:
    """Networks by their latency back to back; frames take `spread` times it and `added_ms`."""

    float_ms: float = 30.0
    fastest_ms: float = 8.0
    spread: float = 1.1
    added_ms: float = 0.0
    narrowest_ms: float = 0.0
    disturbances: int = 0
    is_trainable: bool = False
    lacks_extra: bool = False
    unproven: tuple[str, ...] = ()
    fast_enough_ms: float = 0.0
    slower_than_aimed: float = 1.0
    measured_again: int = 0
    goals: list = field(default_factory=list)
    aims: list = field(default_factory=list)
    told: list = field(default_factory=list)

    def tell(self, line):
        self.told.append((line, len(self.goals), len(self.aims)))

    def time_float(self):
        return self.float_ms

    def judge_float(self, latency_ms):
        return self._judge("float", latency_ms)

    def judge_again(self, tried):
        self.measured_again += 1
        return self._judge(tried.name, tried.latency_ms)

    def fit_integers(self, source, within_ms, name):
        self.goals.append(within_ms)
        fastest = self.slower_than_aimed * self.aims[-1] if source else self.fastest_ms
        if fastest > within_ms:
            raise LatencyError("too slow", "more", "", fastest_ms=fastest)
        return self._judge(name, within_ms)

    def narrow(self, int8_ms):
        if self.lacks_extra:
            raise MissingExtraError("lightning_fabric", "train")
        self.aims.append(int8_ms)
        if self.fast_enough_ms and int8_ms >= self.fast_enough_ms:
            raise FastEnoughError("not below", "less", latency_ms=self.fast_enough_ms)
        if int8_ms < self.narrowest_ms:
            raise LatencyError("too fast", "", "allow less with --fewest", fastest_ms=1.0)
        return Path("narrow.pt")

    def _judge(self, name, latency_ms):
        bound = latency_ms * self.spread + self.added_ms
        verdict = Verdict.PASS if bound <= LIMIT_MS else Verdict.FAIL
        if name in self.unproven:
            verdict = Verdict.INCONCLUSIVE
        gates = tuple(Gate(gate, verdict, "") for gate in LATENCY_GATES)
        variant = FakeVariant({"p99_upper_ms": bound}, {"max": bound})
        whole = Verdict.INVALID if self.disturbances > 0 else verdict
        self.disturbances -= 1
        report = FakeReport(gates, (variant,), whole)
        return Tried(name=name, artifact=Path(name), latency_ms=latency_ms, report=report)


def test_a_float_network_that_is_fast_enough_is_taken():
    found = climb(FakeWorkshop(float_ms=15.0), LIMIT_MS)
    assert found.chosen.name == "float"
    assert len(found.tried) == 1


def test_a_float_network_that_is_too_slow_is_not_measured_at_all():
    workshop = FakeWorkshop()
    found = climb(workshop, LIMIT_MS)
    assert [item.name for item in found.tried] == ["INT8"]
    assert found.chosen is found.tried[0]
    assert "30.00 ms" in found.notes[0]


def test_what_the_camera_rate_adds_is_learned():
    """The float network misses by its spread, so the first goal of integers knows it."""
    workshop = FakeWorkshop(float_ms=18.0, spread=1.5)
    found = climb(workshop, LIMIT_MS)
    assert [item.keeps for item in found.tried] == [False, True]
    assert LIMIT_MS / 1.5 * 0.9 < workshop.goals[0] <= LIMIT_MS / 1.5


def test_a_goal_that_was_missed_is_lowered_and_not_by_much():
    workshop = FakeWorkshop(spread=1.6)
    found = climb(workshop, LIMIT_MS)
    assert found.chosen is found.tried[-1]
    assert workshop.goals == sorted(workshop.goals, reverse=True)
    assert found.chosen.bound_ms > 0.9 * LIMIT_MS


def test_without_weights_to_train_the_ladder_ends_and_says_so():
    found = climb(FakeWorkshop(fastest_ms=25.0), LIMIT_MS)
    assert found.chosen is None
    assert not found.tried
    assert any("25.00 ms" in note for note in found.notes)
    assert any("can be trained" in note for note in found.notes)


def test_channels_are_taken_out_until_integers_are_fast_enough():
    workshop = FakeWorkshop(fastest_ms=25.0, is_trainable=True)
    found = climb(workshop, LIMIT_MS)
    assert found.chosen.name.endswith("INT8")
    assert len(workshop.aims) == 1
    assert 0.95 * LIMIT_MS / 1.15 < workshop.aims[0] < LIMIT_MS / 1.15


def test_integers_that_are_slower_than_was_aimed_at_are_narrowed_once_more():
    workshop = FakeWorkshop(fastest_ms=25.0, is_trainable=True, slower_than_aimed=1.2)
    found = climb(workshop, LIMIT_MS)
    first, second = workshop.aims
    assert found.chosen is not None
    assert second == pytest.approx(first / 1.2)


def test_a_narrow_network_that_misses_at_the_cameras_rate_is_narrowed_by_as_much():
    workshop = FakeWorkshop(fastest_ms=25.0, is_trainable=True, spread=1.5)
    found = climb(workshop, LIMIT_MS)
    assert found.chosen is not None
    assert found.chosen.bound_ms > 0.85 * LIMIT_MS
    first, second = workshop.aims
    assert second == pytest.approx(first * LIMIT_MS / (first * 1.5), rel=0.1)


def test_a_network_is_measured_again_after_a_disturbance():
    workshop = FakeWorkshop(disturbances=MEASUREMENTS - 1)
    found = climb(workshop, LIMIT_MS)
    assert workshop.measured_again == MEASUREMENTS - 1
    assert found.chosen is found.tried[0]


@pytest.mark.parametrize("float_ms", [15.0, 30.0])
def test_on_a_disturbed_machine_no_network_is_given_up_for_a_worse_one(float_ms):
    workshop = FakeWorkshop(float_ms=float_ms, disturbances=MEASUREMENTS, is_trainable=True)
    found = climb(workshop, LIMIT_MS)
    assert found.chosen is None
    assert len(found.tried) == 1
    assert not workshop.aims
    assert "disturbed" in found.notes[-1]


def test_where_no_network_was_judged_there_is_no_table(capsys):
    found = climb(FakeWorkshop(fastest_ms=25.0), LIMIT_MS)
    show_outcome(FitOutcome(limit_ms=LIMIT_MS, fitted=found, quality={}))
    shown = capsys.readouterr().out
    assert "keeps it" not in shown
    assert "no network keeps the budget" in shown


def test_what_a_disturbed_machine_measured_is_no_answer(capsys):
    """All gates on the latency pass, but the machine was too disturbed for that to count."""
    found = climb(FakeWorkshop(disturbances=MEASUREMENTS), LIMIT_MS)
    (tried,) = found.tried
    assert tried.keeps is None
    quality = {tried.artifact: {"outputs": {"y": {"sqnr_db": 40.0}}}}
    show_outcome(FitOutcome(limit_ms=LIMIT_MS, fitted=found, quality=quality))
    shown = capsys.readouterr().out
    assert "unknown" in shown
    assert "yes" not in shown


@pytest.mark.parametrize(
    ("first", "second", "keeps"),
    [
        (Verdict.PASS, Verdict.PASS, True),
        (Verdict.PASS, Verdict.INCONCLUSIVE, None),
        (Verdict.FAIL, Verdict.INCONCLUSIVE, False),
    ],
)
def test_too_few_frames_are_no_answer_unless_a_limit_is_broken(first, second, keeps):
    verdicts = zip(LATENCY_GATES, (first, second), strict=True)
    gates = tuple(Gate(name, verdict, "") for name, verdict in verdicts)
    report = FakeReport(gates, (FakeVariant({}, {"max": 1.0}),), Verdict.FAIL)
    tried = Tried(name="INT8", artifact=Path("a"), latency_ms=1.0, report=report)
    assert tried.keeps is keeps


@pytest.mark.parametrize(("float_ms", "name"), [(15.0, "float"), (30.0, "INT8")])
def test_where_only_frames_are_missing_no_rung_is_left_behind(float_ms, name, capsys):
    workshop = FakeWorkshop(float_ms=float_ms, unproven=("float", "INT8"), is_trainable=True)
    found = climb(workshop, LIMIT_MS)
    assert found.chosen is found.tried[-1]
    assert [item.name for item in found.tried] == [name]
    assert not workshop.aims
    outcome = FitOutcome(limit_ms=LIMIT_MS, fitted=found, quality={})
    assert outcome.exit_code == 3
    assert "too few to prove it" in found.notes[-1]


def test_what_may_be_too_slow_is_left_behind_and_is_no_proof_that_none_keeps_the_budget(capsys):
    workshop = FakeWorkshop(float_ms=15.0, spread=2.0, fastest_ms=12.0, unproven=("float", "INT8"))
    found = climb(workshop, LIMIT_MS)
    assert found.chosen is None
    assert [item.name for item in found.tried] == ["float"]
    outcome = FitOutcome(limit_ms=LIMIT_MS, fitted=found, quality={})
    assert outcome.exit_code == 3
    quality = {item.artifact: {"outputs": {"y": {"sqnr_db": 40.0}}} for item in found.tried}
    show_outcome(FitOutcome(limit_ms=LIMIT_MS, fitted=found, quality=quality))
    assert "could not be told" in capsys.readouterr().out


def test_a_network_that_is_fast_enough_as_it_is_is_narrowed_further():
    workshop = FakeWorkshop(spread=2.5, fast_enough_ms=5.0, fastest_ms=8.0, is_trainable=True)
    found = climb(workshop, LIMIT_MS)
    first, second = workshop.aims[:2]
    assert second < 5.0 <= first
    assert found.chosen is not None


def test_a_machine_that_is_never_fast_enough_ends():
    workshop = FakeWorkshop(added_ms=30.0, is_trainable=True)
    found = climb(workshop, LIMIT_MS)
    assert found.chosen is None
    assert found.tried
    assert not any(item.keeps for item in found.tried)


def test_what_an_extra_is_missing_for_is_said_and_nothing_is_lost():
    workshop = FakeWorkshop(spread=2.5, is_trainable=True, lacks_extra=True)
    found = climb(workshop, LIMIT_MS)
    assert found.is_undecided
    assert len(found.tried) == 1
    assert "fewer channels" in found.notes[-1]
    assert "framefit[train]" in found.notes[-1]
    assert FitOutcome(limit_ms=LIMIT_MS, fitted=found, quality={}).exit_code == 4


def test_a_network_that_cannot_be_narrow_enough_is_said_and_nothing_is_lost():
    workshop = FakeWorkshop(spread=2.5, is_trainable=True, narrowest_ms=19.0)
    found = climb(workshop, LIMIT_MS)
    assert found.chosen is None
    assert len(found.tried) == 1
    assert f"narrowest network takes 1.00 ms, {workshop.aims[-1]:.2f} would do" in found.notes[-1]
    assert "--fewest" not in found.notes[-1]


def test_each_step_is_told_before_it_is_taken_and_each_reason_when_it_is_found():
    workshop = FakeWorkshop(float_ms=15.0, added_ms=10.0, fastest_ms=12.0, is_trainable=True)
    notes = climb(workshop, LIMIT_MS).notes
    begins = [(line.split(":")[0], goals, aims) for line, goals, aims in workshop.told]
    assert begins[:2] == [("float", 0, 0), ("float", 0, 0)]
    assert begins[2] == ("INT8", 0, 0)
    assert begins[-1][0].startswith("narrowed to")
    assert ("fewer channels", 1, 0) in begins
    assert set(notes) <= {line for line, _, _ in workshop.told}
