"""A report.json as samples, as a baseline, and as what a first budget is made of."""

import json

import numpy as np
import pytest

from artifacts.errors import InputError
from framefit.first_budget import measure_or_read
from latency_budget.baseline import read_baseline
from latency_budget.budget import Budget, FrameBudget
from latency_budget.budget_file import render_budget
from latency_budget.check import CheckSettings, check_recorded
from latency_budget.reports import json_report
from latency_budget.reports.read_report import read_report
from latency_budget.tiers import Tier

QUIET = [{"name": "steal", "verdict": "ok", "detail": "0 %"}]
DISTURBED = [{"name": "steal", "verdict": "invalid", "detail": "9 %"}]
MACHINE = {"processor": "Orin", "processors": 8}


def write_times(path, *, centre=20.0, n=1000, seed=1):
    times = np.random.default_rng(seed).normal(centre, 0.2, n)
    path.write_text(json.dumps({"latency_ms": times.tolist(), "network_ms": times.tolist()}))
    return path


def settings_for(rate_hz=30.0, **values):
    budget = Budget(frame=FrameBudget(rate_hz=rate_hz), environment=values.pop("mode", "enforce"))
    return CheckSettings(budget=budget, tier=Tier(frames=1000), **values)


def write_report(folder, change=lambda content: None, *, centre=20.0, name="report.json"):
    """Writes a passing report of 1000 frames at 30 Hz, and changes it."""
    report = check_recorded(write_times(folder / "times.json", centre=centre), settings_for())
    content = json.loads(json_report.render(report))
    content["environment"] = {"verdict": "ok", "checks": QUIET, "machine": MACHINE}
    change(content)
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def details_of(content):
    return content["variants"][-1]["details"]


def gate_of(report, name):
    return next(gate for gate in report.gates if gate.name == name)


def test_a_network_measured_alone_is_no_whole_frame_when_it_is_judged_again(tmp_path):
    path = write_report(tmp_path, lambda content: details_of(content).update(is_whole_frame=False))
    report = check_recorded(path, settings_for())
    names = {gate.name for gate in report.gates}
    assert "part P99" in names
    assert "frame P99" not in names
    assert "Only network was measured" in report.notes[0]


def test_samples_of_another_rate_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"came at 30 Hz; expected 10 Hz"):
        check_recorded(write_report(tmp_path), settings_for(rate_hz=10.0))


def test_processes_stay_apart_when_their_frames_are_judged_again(tmp_path):
    """Three levels of three processes are no frame that never settled."""

    def slower_each_time(content):
        samples = content["samples"][-1]
        for frames in (samples["frame_ns"], samples["stages_ns"]["network"]):
            frames[333:] = [int(value * 1.05) for value in frames[333:]]
            frames[666:] = [int(value * 1.05) for value in frames[666:]]

    def with_processes(content):
        slower_each_time(content)
        details_of(content)["processes"] = [{"n": 333}, {"n": 333}, {"n": 334}]

    together = check_recorded(write_report(tmp_path, slower_each_time), settings_for())
    apart = check_recorded(write_report(tmp_path, with_processes), settings_for())
    assert gate_of(together, "steady state").verdict == "invalid"
    assert gate_of(apart, "steady state").verdict == "pass"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.update(verdict="invalid"), "was judged invalid"),
        (lambda content: content["environment"].update(checks=DISTURBED), "a disturbed machine"),
        (lambda content: content["frame"].update(rate_hz=10.0), "at the rate 10 Hz"),
        (lambda content: details_of(content).update(is_whole_frame=False), "a part of the frame"),
        (lambda content: content["environment"].update(checks=3), "is not a whole report"),
        (lambda content: details_of(content).update(session="fast"), "is not a whole report"),
        (lambda content: content["samples"][-1].update(frame_ns=[10**30]), "1 impossible times"),
        (lambda content: content["samples"][-1].update(frame_ns=[-5, 5]), "1 impossible times"),
    ],
)
def test_a_baseline_that_was_measured_otherwise_is_refused(tmp_path, change, message):
    baseline = write_report(tmp_path, change)
    times = write_times(tmp_path / "new.json", seed=2)
    with pytest.raises(InputError, match=message) as caught:
        check_recorded(times, settings_for(baseline=baseline))
    assert "report.json" in str(caught.value)


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ({"mode": "latest"}, {"mode": "fifo"}, "with the policy latest; expected fifo"),
        ({"plan": {"values": {"how": {"mode": "park"}}}}, {}, "with the heads of 'park'"),
    ],
)
def test_a_baseline_of_other_drops_or_heads_is_refused(tmp_path, was, now, message):
    every_head = {"mode": "fifo", "plan": {"values": {"how": {"mode": None}}}}
    baseline = write_report(
        tmp_path, lambda content: details_of(content).update(every_head | was), name="base.json"
    )
    samples = write_report(tmp_path, lambda content: details_of(content).update(every_head | now))
    with pytest.raises(InputError, match=message):
        check_recorded(samples, settings_for(baseline=baseline))


def test_a_disturbed_baseline_is_taken_where_the_machine_is_only_reported(tmp_path):
    baseline = write_report(
        tmp_path, lambda content: content["environment"].update(checks=DISTURBED)
    )
    times = write_times(tmp_path / "new.json", seed=2)
    report = check_recorded(times, settings_for(mode="report", baseline=baseline))
    assert gate_of(report, "no slower than before").verdict == "pass"


@pytest.mark.parametrize("centre", [20.0, 25.0])
def test_a_baseline_of_another_machine_proves_nothing(tmp_path, centre):
    """Neither that the build is as fast as before, nor that it is slower."""
    baseline = write_report(tmp_path, name="base.json")
    other = {"processor": "Xavier", "processors": 8}
    samples = write_report(
        tmp_path, lambda content: content["environment"].update(machine=other), centre=centre
    )
    gate = gate_of(
        check_recorded(samples, settings_for(baseline=baseline)), "no slower than before"
    )
    assert gate.verdict == "inconclusive"
    assert "another machine (Orin, 8 processors; here Xavier, 8 processors)" in gate.detail


def test_a_baseline_that_holds_the_judged_frames_says_so(tmp_path):
    """As where a job takes its own new report for the one before."""
    path = write_report(tmp_path)
    gate = gate_of(check_recorded(path, settings_for(baseline=path)), "no slower than before")
    assert "the baseline holds these very frames" in gate.detail


def test_a_key_twice_in_a_report_is_refused_wherever_it_is_read(tmp_path):
    path = write_report(tmp_path)
    path.write_text(path.read_text().replace('"verdict"', '"verdict": "pass", "verdict"', 1))
    for read in (read_baseline, read_report, lambda path: check_recorded(path, settings_for())):
        with pytest.raises(InputError, match="'verdict' appears twice"):
            read(path)


def read_for_budget(path, **values):
    return measure_or_read(None, path, None, {}, frames=1, **values)


def test_a_budget_has_the_rate_of_the_report_that_it_is_made_of(tmp_path):
    path = write_report(tmp_path, lambda content: content["frame"].update(rate_hz=10.0))
    measured = read_for_budget(path)
    assert "rate_hz = 10\n" in render_budget(measured.run, rate_hz=measured.rate_hz)
    with pytest.raises(InputError, match="--rate-hz is 30, but the frames"):
        read_for_budget(path, rate_hz=30.0)


def test_a_budget_from_a_disturbed_report_is_warned_of(tmp_path, caplog):
    path = write_report(tmp_path, lambda content: content["environment"].update(checks=DISTURBED))
    read_for_budget(path)
    assert "too disturbed to measure a budget on (steal: 9 %)" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frame,latency_ms\n", "no frame was recorded"),
        ("latency_ms,dropped\n,1\n,1\n", "every frame was dropped"),
        ("frame,latency_ms\n0,20\n5,21\n", "frame numbers are missing"),
        ("frame,latency_ms\n0,20\n1,nan\n", "impossible values"),
    ],
)
def test_no_budget_is_made_of_samples_that_tell_nothing(tmp_path, text, message):
    path = tmp_path / "times.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_for_budget(path)


def test_dropped_frames_are_said_beside_the_deadline(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("latency_ms,dropped\n20,0\n21,0\n,1\n")
    assert "measured P99: 21.00; 1 frames were dropped" in render_budget(
        read_for_budget(path).run, rate_hz=30.0
    )


@pytest.mark.parametrize(("slow_ms", "is_broken"), [(23, False), (30, True)])
def test_a_jitter_that_the_budget_does_not_allow_is_said_beside_it(tmp_path, slow_ms, is_broken):
    path = tmp_path / "times.csv"
    path.write_text("latency_ms\n" + "20\n" * 180 + f"{slow_ms}\n" * 20)
    text = render_budget(read_for_budget(path).run, rate_hz=30.0)
    assert f"measured: {slow_ms / 20:.2f}" in text
    assert ("so these frames break it" in text) is is_broken


@pytest.mark.parametrize(
    ("slow_ms", "expected"),
    [
        (20, '"network" = 22\n'),
        (32, '"network" = 33.3   # the deadline; measured: 32.00\n'),
        (90, '"network" = 33.3   # the deadline; measured: 90.00, so these frames break it\n'),
    ],
)
def test_no_stage_has_more_than_the_deadline(tmp_path, slow_ms, expected):
    path = tmp_path / "times.csv"
    path.write_text("latency_ms,network_ms\n" + f"{slow_ms},{slow_ms}\n" * 400)
    assert expected in render_budget(read_for_budget(path).run, rate_hz=30.0)
