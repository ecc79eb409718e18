import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import InputError
from latency_budget.budget import Budget
from latency_budget.check_notes import describe_limits

EXAMPLE = Path(__file__).parents[2] / "examples" / "budget.toml"


def load(tmp_path, text):
    path = tmp_path / "budget.toml"
    path.write_text(text, encoding="utf-8")
    return Budget.load(path)


def test_the_example_is_a_valid_budget_that_adds_up():
    budget = Budget.load(EXAMPLE)
    assert budget.frame.deadline_ns == 33_000_000
    assert sum(budget.stages.values()) <= budget.frame.deadline_ms
    assert budget.heads["detection"].metric == "mAP50"
    assert budget.tier("release").frames == 54_000


@pytest.mark.parametrize("drop", [0, 0.5, 1, 1.5, 250])
def test_a_drop_has_the_unit_of_its_metric(tmp_path, drop):
    """Pixels, millimetres, degrees, percent: what allows everything is told beside the quality."""
    budget = load(tmp_path, f"[heads.flow]\nmetric = 'EPE'\nmax_drop = {drop}")
    assert budget.heads["flow"].max_drop == drop


@pytest.mark.parametrize("text", ["", "\n", "# a comment\n"])
def test_an_empty_budget_is_refused(tmp_path, text):
    """A copy that failed would else be judged by defaults that nobody asked for."""
    with pytest.raises(InputError, match="is empty; expected limits"):
        load(tmp_path, text)


def test_an_empty_frame_has_the_defaults(tmp_path):
    budget = load(tmp_path, "[frame]")
    assert (budget.frame.rate_hz, budget.frame.deadline_ms, budget.frame.p99_over_p50) == (
        30,
        33,
        1.2,
    )


def test_the_deadline_is_never_longer_than_the_period(tmp_path):
    budget = load(tmp_path, "[frame]\nrate_hz = 60\ndeadline_ms = 33.0")
    assert budget.frame.deadline_ns == 16_666_666


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[frame]\ndedline_ms = 33", ["unknown key 'frame.dedline_ms'", "'deadline_ms'"]),
        ("[fram]\nrate_hz = 3", ["unknown key 'fram'", "did you mean 'frame'"]),
        ("[tiers.pr]\nframe = 3", ["tiers.pr.frame", "did you mean 'frames'"]),
        ("[heads.a]\nmetric = 'x'\nmaxdrop = 1", ["heads.a.maxdrop", "'max_drop'"]),
        ("[frame]\ndeadline_ms = 0", ["frame.deadline_ms = 0", "above 0 in ms"]),
        ("[frame]\ndeadline_ms = -33", ["frame.deadline_ms = -33", "above 0"]),
        ("[frame]\ndeadline_ms = '33'", ["frame.deadline_ms = '33'", "without quotes"]),
        ("[frame]\ndeadline_ms = nan", ["frame.deadline_ms = nan", "above 0"]),
        ("[frame]\ndeadline_ms = inf", ["frame.deadline_ms = inf", "above 0"]),
        ("[frame]\ndeadline_ms = true", ["frame.deadline_ms = True", "a number"]),
        ("[frame]\ndeadline_ms = 0.033", ["in seconds? then write 33"]),
        ("[frame]\ndeadline_ms = 33000", ["33000 µs are 33 ms"]),
        ("[frame]\nrate_hz = 0", ["frame.rate_hz = 0", "above 0 in Hz"]),
        ("[frame]\nrate_hz = 1e-300", ["frame.rate_hz = 1e-300", "in Hz, at least 0.1"]),
        ("[frame]\np99_over_p50 = 0.9", ["frame.p99_over_p50 = 0.9", "a ratio above 1"]),
        ("[frame]\nmax_consecutive_misses = 1.5", ["max_consecutive_misses = 1.5", "whole"]),
        ("[stages]\nnetwork = 0", ["stages.network = 0", "above 0 in ms"]),
        ("[stages]\nnetwork = [1]", ["stages.network = [1]", "above 0 in ms"]),
        ("stages = 3", ["stages = 3", "[stages]"]),
        ("[heads.a]\nmetric = 'x'", ["[heads.a] has no max_drop"]),
        ("[heads.a]\nmetric = 3\nmax_drop = 0.1", ["heads.a.metric = 3"]),
        ("[heads]\na = 3", ["heads.a = 3", "[heads.a]"]),
        (
            "[heads.a]\nmetric = 'badness'\nmax_drop = 0.1",
            ["[heads.a]: the metric 'badness'", "lower_is_better = true or false"],
        ),
        (
            "[heads.a]\nmetric = 'ADE'\nmax_drop = 0.1\nlower_is_better = 1",
            ["heads.a.lower_is_better = 1", "true or false"],
        ),
        (
            "[tiers.pr]\nconfidence = 95",
            ["tiers.pr.confidence = 95", "in percent? then write 0.95"],
        ),
        (
            "[tiers.pr]\nconfidence = 0.05",
            ["tiers.pr.confidence = 0.05", "chance of an error? then write 0.95"],
        ),
        ("[frame]\ndeadline_ms = 1" + "0" * 400, ["frame.deadline_ms = 1", "above 0 in ms"]),
        (
            "[heads.detection]\nmetric = 'mAP50'\nmax_drop = 0.01\n"
            "[modes.highway]\nheads = ['detecton']",
            ["modes.highway.heads has 'detecton'", "did you mean 'detection'"],
        ),
        (
            "[heads.depth]\nmetric = 'abs_rel'\nmax_drop = 0.01\n[modes.far]\nheads = ['Depth']",
            ["modes.far.heads has 'Depth'", "did you mean 'depth'"],
        ),
        ("[tiers.pr]\nrule = 'wald'", ["tiers.pr.rule = 'wald'", '"sprt"']),
        ("[environment]\nmode = 'off'", ["environment.mode = 'off'"]),
        ("[frame\n", ["not TOML", "line 1"]),
        ("a" + ".a" * 100_000 + " = 1", ["not TOML", "more than 16 parts"]),
        ("[frame]\nrate_hz = 30\nrate_hz = 31", ["not TOML"]),
    ],
)
def test_wrong_budgets_are_one_clear_line(tmp_path, text, parts):
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "budget.toml" in message
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_missing_folder_and_binary_budgets_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read the budget"):
        Budget.load(tmp_path / "none.toml")
    with pytest.raises(InputError, match="cannot read the budget"):
        Budget.load(tmp_path)
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        Budget.load(tmp_path / "b.toml")


@given(text=st.text(max_size=60))
def test_any_text_is_a_budget_or_an_input_error(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("b") / "budget.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(InputError):
        assert Budget.load(path).frame.deadline_ns > 0


def test_an_unknown_tier_is_named_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'nightly'"):
        Budget().tier("nigtly")


def test_a_mode_may_have_heads_without_a_contract(tmp_path):
    text = "[heads.depth]\nmetric = 'abs_rel'\nmax_drop = 0.01\n"
    budget = load(tmp_path, f"{text}[modes.night]\nheads = ['depth', 'depths', 'lanes']")
    assert set(budget.for_mode("night").heads) == {"depth"}
    (note,) = describe_limits(budget.for_mode("night"), "night")
    assert note.endswith("Without a contract, so not judged: depths, lanes.")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("p99_over_p50 = 20", "lets P99 be 20 times P50. If 20 % is meant, write 1.2."),
        ("p99_over_p50 = 2.5", "lets P99 be 2.5 times P50."),
        ("jitter_floor_ms = 33", "is not below the deadline of 33 ms"),
        ("max_consecutive_misses = 300", "lets 10 s of frames be missed in a row"),
        ("[stages]\nnetwork = 5000", "Beyond the deadline of 33 ms: stage network."),
        ("p99_over_p50 = 1.5", ""),
    ],
)
def test_limits_that_hardly_limit_are_said(tmp_path, text, note):
    path = tmp_path / "budget.toml"
    path.write_text(f"[frame]\n{text}\n")
    notes = describe_limits(Budget.load(path), None)
    assert len(notes) == bool(note)
    assert note in "".join(notes)


def test_a_part_gets_what_the_other_stages_leave(tmp_path):
    budget = load(tmp_path, "[stages]\nnetwork = 21\npreprocess = 5\nplanning = 6")
    part = budget.for_part(("network",))
    assert part.frame.deadline_ms == 22
    assert part.stages == {"network": 21}
    greedy = load(tmp_path, "[stages]\nother = 40")
    with pytest.raises(InputError, match="less than the frame's deadline of 33 ms"):
        greedy.for_part(("network",))
    fast = load(tmp_path, "[frame]\nrate_hz = 200\n[stages]\nother = 12")
    with pytest.raises(InputError, match=r"12 ms; expected less than the 5 ms between .* 200 Hz"):
        fast.for_part(("network",))
