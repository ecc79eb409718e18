import gzip
import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import InputError
from latency_budget.budget import Budget, FrameBudget
from latency_budget.budget_file import render_budget
from latency_budget.recorded import READERS, read_recording
from latency_budget.repeated_rows import find_repeats
from latency_budget.report import build_report, build_variant
from latency_budget.reports.json_report import render
from latency_budget.run import Run
from latency_budget.verdict import Verdict, judge

MS = 1_000_000
LATENCY, NETWORK = [21.5, 20.25, 22.0], [15.0, 14.0, 15.5]


def write(tmp_path, suffix, columns):
    path = tmp_path / f"samples{suffix}"
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if suffix == ".npz":
        np.savez(path, **{name: np.asarray(values) for name, values in columns.items()})
    elif suffix == ".json":
        path.write_text(json.dumps(columns))
    elif suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    else:
        lines = [",".join(columns), *[",".join(str(v) for v in row.values()) for row in rows]]
        path.write_text("\n".join(lines) + "\n")
    return path


def read_recorded(path) -> Run:
    return read_recording(path).run


@pytest.mark.parametrize("suffix", sorted(READERS))
@pytest.mark.parametrize(("unit", "factor"), [("ms", 1), ("us", 1e3), ("ns", 1e6)])
def test_every_format_and_unit_gives_the_same_run(tmp_path, suffix, unit, factor):
    columns = {
        "frame": [7, 8, 9],
        f"latency_{unit}": [value * factor for value in LATENCY],
        f"network_{unit}": [value * factor for value in NETWORK],
    }
    run = read_recorded(write(tmp_path, suffix, columns))
    assert run.latency_ns.tolist() == [value * MS for value in LATENCY]
    assert run.stage_ns("network").tolist() == [value * MS for value in NETWORK]
    assert run.find_defects() == ()


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl"])
def test_dropped_frames_need_no_latency_and_are_misses(tmp_path, suffix):
    empty = "" if suffix == ".csv" else None
    columns = {"latency_ms": [20.0, empty, 21.0], "dropped": [0, 1, 0]}
    run = read_recorded(write(tmp_path, suffix, columns))
    assert run.find_misses(33 * MS).tolist() == [False, True, False]
    assert run.find_defects() == ()


@pytest.mark.parametrize(
    ("columns", "defect"),
    [
        ({"latency_ms": [20.0, float("nan"), 20.0]}, "impossible values of latency_ms"),
        ({"latency_ms": [20.0, float("inf"), 20.0]}, "impossible values of latency_ms"),
        ({"latency_ms": [20.0, 0.0, 20.0]}, "impossible values of latency_ms"),
        ({"latency_ms": [20.0, -1.0, 20.0]}, "first at row 1"),
        ({"latency_ms": [20.0] * 3, "frame": [0, 0, 1]}, "frame numbers"),
        ({"latency_ms": [20.0] * 3, "frame": [0, 1, 3]}, "frame numbers are missing"),
        ({"latency_ms": [20.0] * 3, "frame": [0, 1, 3]}, "is a row with dropped = 1"),
        ({"latency_ms": [20.0] * 3, "frame": [7, 8, 0]}, "judge each recording by itself"),
        ({"latency_ms": [20.0] * 3, "frame": [2, 1, 0]}, "out of order"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_impossible_samples_make_the_verdict_invalid(tmp_path, suffix, columns, defect):
    """Row 111."""
    run = read_recorded(write(tmp_path, suffix, columns))
    assert defect in run.find_defects()[0]
    assert judge(run, Budget()).verdict.exit_code == 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "latency\n3\n", "exactly one of latency_ms"),
        ("a.csv", "latency_ms,network\n3,2\n", "'network' does not say its unit"),
        ("a.csv", "latency_ms,latency_ns\n3,2\n", "exactly one of"),
        ("a.csv", "latency_ms,a_ms,a_ns\n3,2,1\n", "two units"),
        ("a.csv", "latency_ms\nfast\n", "latency_ms of row 0 is 'fast'"),
        ("a.csv", "latency_ms,a_ms\n1\n", "row 0"),
        ("a.csv", "latency_ms\n1,2\n", "row 0"),
        ("a.csv", "latency_ms;a_ms\n20,5;3,1\n", "semicolons between its cells"),
        ("a.csv", "latency_ms\ta_ms\n20.5\t3.1\n", "tabs between its cells"),
        ("a.csv", "latency_ms\n2_0\n", "latency_ms of row 0 is '2_0'"),
        ("a.jsonl", '{"latency_ms": 20, "frame": 0}\n{"dropped": 1}', "frames are numbered too"),
        ("a.csv", "", "none"),
        ("a.json", "3", "neither an object nor a list"),
        ("a.json", "[3]", "a frame is not an object"),
        ("a.json", '{"latency_ms": 3}', "not a list"),
        ("a.json", '{"latency_ms": [1, 2], "a_ms": [1]}', "different length"),
        ("a.json", '{"latency_ms": [true]}', "row 0 is True"),
        ("a.json", "{", "not a valid .json"),
        (
            "a.json",
            '{"latency_ms": [40], "latency_ms": [20]}',
            "the key 'latency_ms' appears twice",
        ),
        ("a.jsonl", "{}\n[", "not a valid .jsonl"),
        ("a.npz", "text", "not a valid .npz file: it is no archive"),
        ("a.npz", "", "not a valid .npz"),
        ("a.txt", "3", "unknown suffix"),
        ("a.csv", "latency_ms,dropped\n1,maybe\n", "dropped of row 0"),
        ("a.csv", "latency_ms,_ms\n1,2\n", "'_ms' does not say"),
        ("a.csv", "latency_ms,a_ms,a_ms\n1,2,3\n", "'a_ms' twice"),
        ("a.csv", ",latency_ms\n0,20\n", "column 1 has no name"),
        ("a.csv", "latency_ms,t_ms\n20,1e9\n20,2e9\n20,3e9\n", "'t_ms' counts up from row to row"),
        ("a.csv.gz", "x", "unpack it first"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_recorded(path)
    assert message in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_whole_numbers_of_any_length_are_refused_and_no_internal_error(tmp_path):
    for column in ("latency_ns", "frame"):
        (tmp_path / "s.json").write_text(json.dumps({"latency_ms": [20], column: [10**400]}))
        with pytest.raises(InputError, match="a number has 401 digits"):
            read_recording(tmp_path / "s.json")


@pytest.mark.parametrize(
    ("content", "fix"),
    [
        (gzip.compress(b"latency_ms\n20\n", mtime=0), "unpack it first"),
        ("latency_ms\n20\n".encode("utf-16"), "save it as UTF-8"),
        ("främe,latency_ms\n1,20\n".encode("latin-1"), "not UTF-8 text"),
    ],
)
def test_what_is_no_utf_8_says_what_it_is(tmp_path, content, fix):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not UTF-8 text") as caught:
        read_recorded(path)
    assert fix in str(caught.value)


def test_times_with_a_unit_of_their_own_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", latency_ms=np.full(3, 20, "timedelta64[ms]"))
    with pytest.raises(InputError, match="not numbers in the unit of its name"):
        read_recorded(tmp_path / "a.npz")


def test_rows_that_hold_frames_twice_are_no_evidence(tmp_path):
    """99 clean frames are not enough; joined or held four times they are no more."""
    clean = np.random.default_rng(3).normal(20, 0.2, 99).round(4)
    for times in (np.tile(clean, 4), np.repeat(clean, 4)):
        run = read_recorded(write(tmp_path, ".csv", {"latency_ms": times.tolist()}))
        assert "written twice?" in run.find_defects()[0]
        assert judge(run, Budget()).verdict is Verdict.INVALID


def test_repeats_are_looked_for_in_little_memory():
    """A week of frames is millions of rows."""
    latency = np.random.default_rng(1).integers(15 * MS, 25 * MS, 100_000)
    tracemalloc.start()
    try:
        assert not find_repeats(latency)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 120 * len(latency)


@pytest.mark.parametrize("digits", [0, 1, 2, 3])
def test_values_that_come_back_by_rounding_are_no_repeats(tmp_path, digits):
    times = np.random.default_rng(3).normal(20, 1.5, 6000).round(digits)
    run = read_recorded(write(tmp_path, ".csv", {"latency_ms": times.tolist()}))
    assert run.find_defects() == ()


def test_seconds_beneath_a_name_that_says_ms_do_not_pass(tmp_path):
    times = np.random.default_rng(3).normal(0.025, 0.0002, 1000)
    run = read_recorded(write(tmp_path, ".csv", {"latency_ms": times.tolist()}))
    judgement = judge(run, Budget())
    assert judgement.verdict is Verdict.INVALID
    assert "is that the column's unit?" in judgement.gates[0].detail


def test_microseconds_beneath_a_name_that_says_ms_are_asked_about(tmp_path):
    times = np.random.default_rng(3).normal(25_000, 200, 1000)
    run = read_recorded(write(tmp_path, ".csv", {"latency_ms": times.tolist()}))
    judgement = judge(run, Budget())
    assert judgement.verdict is Verdict.FAIL
    assert "times the deadline: is that the column's unit?" in judgement.gates[0].detail


def test_frames_that_wait_for_each_other_are_not_asked_about(tmp_path):
    """A pipeline of 100 s a frame behind a camera: the first frame did not wait."""
    times = 50.0 + 100_000.0 * np.arange(500)
    columns = {"latency_ms": times.tolist(), "frame": list(range(500))}
    with pytest.raises(InputError, match="counts up"):
        read_recorded(write(tmp_path, ".csv", columns))
    times[::7] -= 200_000.0
    times[0] = 50.0
    times[7:] = np.maximum(times[7:], 1.0)
    judgement = judge(
        read_recorded(write(tmp_path, ".csv", columns | {"latency_ms": times})), Budget()
    )
    assert "column's unit" not in judgement.gates[0].detail
    assert "499 frames waited for the one before; of the others, 1 frame is too few to tell" in (
        judgement.gates[2].detail
    )


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_what_is_no_number_is_shown_and_no_latency_of_zero(tmp_path, value):
    run = read_recorded(write(tmp_path, ".csv", {"latency_ms": [20.0, value, 21.0]}))
    (defect,) = run.find_defects()
    assert defect == f"1 impossible values of latency_ms, first at row 1 ({value})"


def test_a_line_that_was_cut_is_named_by_its_row(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text('{"latency_ms": 20.5}\n{"latency_ms": 21.5}\n{"latency_ms": 2')
    with pytest.raises(InputError, match="row 2 is no JSON"):
        read_recorded(path)


def test_light_stages_are_believed_where_their_budgets_are_as_light(tmp_path):
    """A frame of 0.1 ms is no mistake of the unit where its stages may take no more."""
    times = np.random.default_rng(3).normal(0.1, 0.0005, 1000)
    path = write(tmp_path, ".csv", {"latency_ms": times.tolist(), "filter_ms": times.tolist()})
    judgement = judge(read_recorded(path), Budget())
    assert "give each a budget of its size" in judgement.gates[0].detail
    assert judge(read_recorded(path), Budget(stages={"filter": 0.12})).verdict is Verdict.PASS
    whole = judge(read_recorded(path), Budget(stages={"filter": 30.0}))
    assert whole.verdict is Verdict.INVALID
    seconds = write(
        tmp_path,
        ".csv",
        {"latency_ms": (times / 1e3).tolist(), "filter_ms": (times / 1e3).tolist()},
    )
    found = judge(read_recorded(seconds), Budget(stages={"filter": 0.12}))
    assert "of its stages' budgets" in found.gates[0].detail


@pytest.mark.parametrize(
    ("mode", "verdict"), [("fifo", Verdict.PASS), ("recorded", Verdict.INVALID)]
)
def test_a_report_is_believed_in_its_unit_where_its_frames_were_measured(tmp_path, mode, verdict):
    times = np.random.default_rng(3).integers(90_000, 91_000, 1000)
    run = replace(Run.from_latencies(times), mode=mode)
    judgement = judge(run, Budget())
    assert judgement.verdict is verdict
    variant = build_variant("light", run, Budget(), judgement=judgement)
    (tmp_path / "report.json").write_text(render(build_report([variant], Budget(), judgement)))
    assert judge(read_recorded(tmp_path / "report.json"), Budget()).verdict is verdict


@pytest.mark.parametrize("tick_ms", [4.0, 15.625, 1000 / 60])
def test_a_coarse_timer_proves_nothing_within_its_tick(tmp_path, tick_ms):
    """2 % of the frames take 30.5 ms of 30; timers that cut off show 28, 15.6 or 16.7."""
    rng = np.random.default_rng(8)
    times = np.where(rng.random(3000) < 0.02, 30.5, 24.5)
    times[::500] = 35  # Some are seen on the next tick.
    shown = (np.floor(times / tick_ms) * tick_ms).round(4)
    assert len(np.unique(shown)) > 1
    run = read_recorded(write(tmp_path, ".csv", {"latency_ms": shown.tolist()}))
    budget = Budget(frame=FrameBudget(deadline_ms=30, p99_over_p50=3, max_consecutive_misses=9))
    assert judge(run, budget).verdict is Verdict.INCONCLUSIVE
    exact = read_recorded(write(tmp_path, ".csv", {"latency_ms": times.tolist()}))
    assert judge(exact, budget).verdict is Verdict.FAIL


def test_samples_without_a_counter_say_what_they_cannot_show(tmp_path):
    for columns, is_said in (
        ({}, True),
        ({"frame": [0, 1, 2]}, False),
        ({"dropped": [0] * 3}, False),
    ):
        path = write(tmp_path, ".csv", {"latency_ms": LATENCY, **columns})
        detail = judge(read_recorded(path), Budget()).gates[0].detail
        assert ("left out would not be seen" in detail) == is_said


def test_a_single_array_in_an_npz_is_refused(tmp_path):
    with (tmp_path / "a.npz").open("wb") as stream:
        np.save(stream, np.ones(3))
    with pytest.raises(InputError, match="without a name"):
        read_recorded(tmp_path / "a.npz")


def test_a_pickle_in_an_npz_is_refused(tmp_path):
    canary = tmp_path / "canary"

    class Bomb:
        def __reduce__(self):
            return (canary.touch, ())

    np.savez(tmp_path / "a.npz", latency_ms=np.asarray([Bomb()], dtype=object))
    with pytest.raises(InputError):
        read_recorded(tmp_path / "a.npz")
    assert not canary.exists()


@given(text=st.text(max_size=80), suffix=st.sampled_from([".csv", ".json", ".jsonl"]))
def test_any_text_is_a_run_or_an_input_error(tmp_path_factory, text, suffix):
    path = tmp_path_factory.mktemp("s") / f"a{suffix}"
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        run = read_recorded(path)
    except InputError:
        return
    judge(run, Budget())


def test_a_written_budget_is_kept_by_the_run_it_came_from(tmp_path):
    rng = np.random.default_rng(2)
    network = rng.normal(18, 0.2, 800)
    run = Run.from_latencies(
        ((network + 3) * MS).astype(np.int64),
        stages_ns={
            "network": (network * MS).astype(np.int64),
            "a b.c": np.full(800, 2 * MS),
        },
    )
    path = tmp_path / "budget.toml"
    path.write_text(render_budget(run, rate_hz=30))
    budget = Budget.load(path)
    assert budget.frame.deadline_ms == 33.3
    assert set(budget.stages) == {"network", "a b.c"}
    assert judge(run, budget).verdict.exit_code == 0


@pytest.mark.parametrize("digits", [0, 1, 2, 3, 6, 12])
def test_stages_rounded_up_are_no_defect(tmp_path, digits):
    stages = np.random.default_rng(1).normal(6, 0.3, (3, 500))
    columns = {
        name: np.round(values, digits).tolist()
        for name, values in zip(("a_ms", "b_ms", "c_ms"), stages, strict=True)
    }
    columns["latency_ms"] = np.round(stages.sum(axis=0), digits).tolist()
    assert read_recorded(write(tmp_path, ".csv", columns)).find_defects() == ()
    columns["b_ms"][7] += 4 * 10.0 ** -min(digits, 5)
    assert "in 1 frames" in read_recorded(write(tmp_path, ".csv", columns)).find_defects()[0]


def test_stages_of_float32_are_no_defect(tmp_path):
    stages = np.random.default_rng(1).normal(9, 0.3, (3, 500)).astype(np.float32)
    columns = {"latency_ms": stages.sum(axis=0), "a_ms": stages[0], "b_ms": stages[1:].sum(axis=0)}
    assert read_recorded(write(tmp_path, ".npz", columns)).find_defects() == ()


def test_a_frame_may_leave_the_flag_out_and_numpy_write_it_as_a_float(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"latency_ms": 3}\n{"dropped": 1}\n{"latency_ms": 3, "dropped": null}\n')
    assert read_recorded(path).dropped.tolist() == [False, True, False]
    columns = {"latency_ms": [3.0, 4.0], "dropped": [0.0, 1.0]}
    assert read_recorded(write(tmp_path, ".npz", columns)).dropped.tolist() == [False, True]


@pytest.mark.parametrize("every", [450, 1800])
def test_stalls_in_recorded_latencies_fail_and_are_no_state_of_the_machine(tmp_path, every):
    """A second's stall delays the thirty frames that arrive in it, and more until it is made up."""
    rng = np.random.default_rng(every)
    latency = rng.normal(20, 0.2, 3600)
    for index in range(1, len(latency)):
        if index % every == 100:
            latency[index] += 1000
        waits = max(0.0, latency[index - 1] - 1000 / 30)
        latency[index] += waits
    run = read_recorded(write(tmp_path, ".csv", {"latency_ms": latency.round(4).tolist()}))
    judgement = judge(run, Budget())
    assert judgement.verdict is Verdict.FAIL
    steady = next(gate for gate in judgement.gates if gate.name == "steady state")
    assert steady.verdict is Verdict.PASS


def test_a_step_in_recorded_latencies_is_still_none_of_one_state(tmp_path):
    rng = np.random.default_rng(5)
    latency = rng.normal(20, 0.2, 2000) + 5 * (np.arange(2000) > 1000)
    run = read_recorded(write(tmp_path, ".csv", {"latency_ms": latency.round(4).tolist()}))
    assert judge(run, Budget()).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("rows", "found"), [(20, "frames 100 to 119 are those from 10 on again"), (19, "")]
)
def test_twenty_rows_that_come_back_are_repeats_wherever_they_are(rows, found):
    times = np.random.default_rng(0).permutation(10**6)[:100]
    assert find_repeats(np.append(times, times[10 : 10 + rows])) == found
    few = np.tile(np.arange(9), 30)[:100]
    assert find_repeats(np.append(few, few)) == ""


@pytest.mark.parametrize(("held", "is_found"), [(12, True), (10, False)])
def test_rows_that_a_fast_recorder_held_are_found_from_a_tenth_on(held, is_found):
    times = np.random.default_rng(0).permutation(10**6)[:100]
    doubled = np.sort(np.r_[np.arange(100 - held), np.arange(0, held)])
    assert bool(find_repeats(times[doubled])) is is_found
