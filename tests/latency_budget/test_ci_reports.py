import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.digest import sha256_file
from artifacts.errors import InputError
from framefit.cli import budget_check_main
from framefit.report_job import extend_history
from latency_budget.artifact_match import match_artifact, match_limits
from latency_budget.budget import Budget, FrameBudget, HeadContract
from latency_budget.gate import Gate, Verdict
from latency_budget.plan import make_plan
from latency_budget.report import build_report, build_variant
from latency_budget.reports import json_report, markdown
from latency_budget.reports.comment import MARKER, render_comment
from latency_budget.reports.github import (
    MOST_ANNOTATIONS,
    SUMMARY_LIMIT_BYTES,
    append_step_summary,
    list_annotations,
)
from latency_budget.reports.read_report import read_report
from latency_budget.run import Run
from latency_budget.tiers import TIERS
from latency_budget.verdict import judge

ROOT = Path(__file__).parents[2]
MS = 1_000_000
NASTY = "a\n::error::forged|x`y"


def make_report(tmp_path, network_ms=18, name="int8", slow=(), wait_ms=0):
    budget = Budget(stages={"preprocess": 3.0, "network": 22.0})
    network = np.full(400, network_ms * MS) + np.arange(400) * 1000
    network[list(slow)] += 40 * MS
    parts = {"preprocess": np.full(400, 2 * MS), "network": network}
    dropped = np.zeros(400, bool)
    dropped[7] = bool(slow)
    latency = sum(parts.values()) + round(wait_ms * MS)
    run = Run.from_latencies(latency, stages_ns=parts, dropped=dropped)
    judgement = judge(run, budget)
    artifact = tmp_path / "model.onnx"
    artifact.write_bytes(b"network")
    reference = tmp_path / "float.onnx"
    reference.write_bytes(b"float network")
    variants = [
        build_variant("float", run, budget, judgement=judgement, artifact=reference),
        build_variant(name, run, budget, judgement=judgement, artifact=artifact),
    ]
    return build_report(variants, budget, judgement, title="CI")


def with_gates(report, gates):
    return dataclasses.replace(report, gates=tuple(gates))


def test_a_report_survives_its_json(tmp_path):
    report = make_report(tmp_path, slow=(20, 21))
    again = read_report(json_report.write(report, tmp_path))
    assert json_report.render(again) == json_report.render(report)
    assert list(again.variants[-1].run.latency_ns) == list(report.variants[-1].run.latency_ns)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema": 2}', '{"schema": 1, "verdict": "pass"}', "[" * 100_000]
)
def test_anything_else_is_refused(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_report(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content["samples"][-1]["frame_ns"].__setitem__(0, float("inf")),
        lambda content: content["samples"][-1]["frame_ns"].__setitem__(0, 10**400),
        lambda content: content["variants"][-1]["details"].update(processes=[{"n": 10**400}]),
        lambda content: content["variants"][-1]["details"].update(processes=[{"n": 1e999}]),
        lambda content: content.update(created_s=10**18),
        lambda content: content.update(variants=[], samples=[]),
    ],
)
def test_numbers_beyond_all_measure_are_bad_input(tmp_path, damage, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    content = json.loads(json_report.write(make_report(tmp_path), tmp_path).read_text())
    damage(content)
    (tmp_path / "damaged.json").write_text(json.dumps(content))
    (tmp_path / "b.toml").write_text("[frame]")
    commands = (
        ["report", "damaged.json", "--out", "out"],
        ["verify", "damaged.json", "b.toml"],
        ["--budget", "b.toml", "--samples", "damaged.json"],
    )
    codes = [budget_check_main(words) for words in commands]
    assert 2 in codes
    assert set(codes) <= {0, 1, 2, 3, 4}
    assert "internal" not in capsys.readouterr().err


def test_no_digest_or_verdict_of_a_file_forges_markdown(tmp_path):
    content = json.loads(json_report.write(make_report(tmp_path), tmp_path).read_text())
    forged = "`\n# <b>PASS</b>"
    content["environment"] = {
        "verdict": f"ok</summary>{forged}",
        "checks": [{"name": "a", "verdict": "ok", "detail": "b"}],
    }
    content["variants"][-1]["sha256"] = forged
    (tmp_path / "forged.json").write_text(json.dumps(content))
    report = read_report(tmp_path / "forged.json")
    for text in (markdown.render(report), render_comment(report)):
        assert "\n# " not in text
        assert "``" not in text.replace("```text", "").replace("\n```", "")
        assert text.count("</summary>") == text.count("<details>")
    assert "`'�# <b>PASS</b>` is the SHA-256" in render_comment(report)


@pytest.mark.parametrize("part", ["missed", "service_ms"])
def test_a_report_that_lacks_what_a_page_shows_is_bad_input(tmp_path, part, capsys):
    file = json_report.write(make_report(tmp_path, slow=(3, 9)), tmp_path)
    content = json.loads(file.read_text())
    content["variants"][-1]["details"][part] = {"count": 1}
    (tmp_path / "old.json").write_text(json.dumps(content))
    out, history = tmp_path / "out", tmp_path / "history.jsonl"
    words = ["--out", str(out), "--history", str(history)]
    assert budget_check_main(["report", str(tmp_path / "old.json"), *words]) == 2
    assert "old.json cannot be shown" in capsys.readouterr().err
    assert not history.exists()
    assert budget_check_main(["report", str(file), *words]) == 0
    assert history.exists()


def test_a_history_behind_a_link_is_written_where_it_points(tmp_path):
    file = json_report.write(make_report(tmp_path), tmp_path)
    kept, link = tmp_path / "kept" / "history.jsonl", tmp_path / "history.jsonl"
    kept.parent.mkdir()
    link.symlink_to(kept)
    for label in ("one", "two"):
        words = ["report", str(file), "--history", str(link), "--label", label]
        assert budget_check_main(words) == 0
    assert link.is_symlink()
    assert len(kept.read_text().splitlines()) == 2


def test_jobs_that_add_to_one_history_lose_no_line(tmp_path):
    """Two threads with files of their own wait for each other as two processes do."""
    report, history = make_report(tmp_path), tmp_path / "history.jsonl"
    labels = [f"{job} {turn}" for turn in range(10) for job in ("one", "two")]
    with ThreadPoolExecutor(2) as jobs:
        done = [jobs.submit(extend_history, history, label, report) for label in labels]
    assert all(job.result() for job in done)
    written = [json.loads(line)["label"] for line in history.read_text().splitlines()]
    assert sorted(written) == sorted(labels)


def test_nine_annotations_the_worst_first_and_one_that_counts(tmp_path):
    gates = [Gate(f"soft {i}", Verdict.INCONCLUSIVE, "?") for i in range(6)]
    gates += [Gate(f"hard {i}", Verdict.FAIL, "x") for i in range(7)]
    gates += [Gate("fine", Verdict.PASS, "x"), Gate("machine", Verdict.INVALID, "x")]
    lines = list_annotations(with_gates(make_report(tmp_path), gates))
    assert len(lines) == MOST_ANNOTATIONS + 1
    assert "machine" in lines[0]
    assert all(line.startswith("::error") for line in lines[:8])
    assert lines[8].startswith("::warning")
    assert "5 more" in lines[-1]
    assert not any("fine" in line for line in lines)


def test_a_passing_report_annotates_nothing(tmp_path):
    gates = [Gate("fine", Verdict.PASS, "x")]
    assert list_annotations(with_gates(make_report(tmp_path), gates)) == []


@settings(deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_no_name_can_forge_a_workflow_command(name, detail):
    base = make_report_once()
    (line,) = list_annotations(with_gates(base, [Gate(name, Verdict.FAIL, detail)]))
    assert len(line.splitlines()) == 1
    command, _, _ = line.removeprefix("::").partition("::")
    assert command.startswith("error title=fail%3A ")
    assert "," not in command


def test_no_line_of_the_text_is_a_workflow_command(tmp_path, capsys):
    """GitHub reads the log of the check as well: names stand alone in lines, and texts wrap."""
    (tmp_path / "budget.toml").write_text("[frame]\n[stages]\nnetwork = 20\n")
    samples = tmp_path / "::error::forged.csv"
    column = f"{'x' * 40} ::stop-commands::token {'y' * 40} ##[add-mask]z_ms"
    rows = "".join(f"{20 + index % 7 / 9:.4f},1\n" for index in range(500))
    samples.write_text(f"latency_ms,{column}\n{rows}")
    words = ["--budget", str(tmp_path / "budget.toml"), "--samples"]
    assert budget_check_main([*words, str(samples)]) == 3
    assert budget_check_main([*words, str(tmp_path / "##[warning]none.csv")]) == 2
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert ": :error::forged.csv" in shown
    assert "stop-commands" in shown
    assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")]
    assert "##[" not in shown


_ONCE = []


def make_report_once():
    if not _ONCE:
        run = Run.from_latencies(np.full(10, 20 * MS))
        budget = Budget()
        judgement = judge(run, budget)
        variant = build_variant("v", run, budget, judgement=judgement)
        _ONCE.append(build_report([variant], budget, judgement))
    return _ONCE[0]


def test_the_step_summary_is_appended_and_cut_at_its_limit(tmp_path):
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    append_step_summary(make_report(tmp_path), path)
    assert path.read_text().startswith("before\n##")
    append_step_summary(make_report(tmp_path), path, "line\n" * SUMMARY_LIMIT_BYTES)
    assert path.stat().st_size <= SUMMARY_LIMIT_BYTES
    assert "Cut here" in path.read_text()


def test_the_comment_shows_each_stage_beside_the_base(tmp_path):
    slower = make_report(tmp_path, network_ms=20, slow=(20, 21))
    text = render_comment(slower, make_report(tmp_path, network_ms=16))
    assert text.startswith(MARKER)
    row = next(line for line in text.splitlines() if line.startswith("| network "))
    assert "+24.7 %" in row
    bars = re.findall(r"^(preprocess|network|frame|deadline) +(.*)$", text, re.MULTILINE)
    assert [name for name, _ in bars][:4] == ["preprocess", "network", "frame", "deadline"]
    assert "Missed frames by stage: network 2, dropped 1" in text
    assert "−" not in render_comment(slower).split("| network ")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("wait_ms", "rows"),
    [
        (0, ["frame 20.2 / 20.4"]),
        (9, ["all stages 20.2 / 20.4", "with its wait 29.2 / 29.4"]),
        (9e4, ["all stages 20.2 / 20.4", "with its wait 90020.2 / 90020.4"]),
    ],
)
def test_the_comment_shows_the_frame_as_it_is_judged(tmp_path, wait_ms, rows):
    """A frame that waits for the one before it is later than its stages take."""
    text = render_comment(make_report(tmp_path, wait_ms=wait_ms))
    bars = text.partition("```text\n")[2].partition("\n```")[0].splitlines()
    shown = [" ".join(re.sub("[█░]+", "", bar).split()) for bar in bars[2:-1]]
    assert shown == [f"{row} ms" for row in rows]
    assert max(len(bar) for bar in bars) < 90
    assert bars[-1].endswith("│ 33 ms")


def test_the_comment_holds_no_foreign_markup(tmp_path):
    text = render_comment(make_report(tmp_path, name=NASTY))
    assert "\n::error" not in text


def as_passed(report):
    variants = tuple(dataclasses.replace(one, gates=()) for one in report.variants)
    return dataclasses.replace(report, verdict=Verdict.PASS, gates=(), variants=variants)


def test_only_the_measured_and_passed_file_is_accepted(tmp_path):
    report = as_passed(make_report(tmp_path))
    assert match_artifact(report, tmp_path / "model.onnx").is_accepted
    edited = dataclasses.replace(report, gates=(Gate("jitter", Verdict.FAIL, ""),))
    found = match_artifact(edited, tmp_path / "model.onnx")
    assert not found.is_accepted
    assert "contradicts itself: its verdict is pass, but 'jitter' is fail" in found.detail
    (tmp_path / "other.onnx").write_bytes(b"networK")
    assert "was not measured" in match_artifact(report, tmp_path / "other.onnx").detail
    found = match_artifact(report, tmp_path / "float.onnx")
    assert not found.is_accepted
    assert "'float', which was not judged" in found.detail
    failed = dataclasses.replace(report, verdict=Verdict.INCONCLUSIVE)
    assert not match_artifact(failed, tmp_path / "model.onnx").is_accepted


def test_a_report_of_recorded_samples_binds_no_artifact(tmp_path):
    with pytest.raises(InputError, match="names no digest"):
        match_artifact(make_report_once(), tmp_path)


def judged_by(report, budget, tier, **how):
    plan = make_plan(budget, tier, subject="model.onnx", sha256="", how=how)
    details = {"plan": json.loads(json.dumps(plan.to_dict()))}
    variants = (*report.variants[:-1], dataclasses.replace(report.variants[-1], details=details))
    return dataclasses.replace(report, variants=variants)


def test_only_a_report_of_the_same_limits_is_accepted(tmp_path):
    budget, pr = Budget(stages={"preprocess": 3.0, "network": 22.0}), TIERS["pr"]
    report = judged_by(make_report(tmp_path), budget, pr)
    assert match_limits(report, budget).is_accepted
    assert match_limits(report, budget, pr).is_accepted
    later = dataclasses.replace(budget, frame=FrameBudget(deadline_ms=20.0))
    for other, tier, named in (
        (later, pr, "limits: frame.deadline_ms 33.0 instead of 20.0"),
        (dataclasses.replace(budget, environment="strict"), None, 'environment "enforce" instead'),
        (budget, TIERS["nightly"], "tier.frames 1980 instead of 18000"),
    ):
        found = match_limits(report, other, tier)
        assert not found.is_accepted
        assert named in found.detail
    with pytest.raises(InputError, match="no plan"):
        match_limits(make_report(tmp_path), budget)


def test_a_network_alone_is_held_against_its_part_of_the_budget(tmp_path):
    whole = Budget(
        stages={"preprocess": 3.0, "network": 22.0, "planning": 2.0},
        heads={"depth": HeadContract(metric="abs_rel", max_drop=0.01)},
    )
    report = make_report(tmp_path)
    part = whole.for_part(report.variants[-1].run.stage_names)
    assert match_limits(judged_by(report, part, TIERS["pr"]), whole).is_accepted
    tight = Budget(stages={"planning": 30.9})
    assert not match_limits(judged_by(report, part, TIERS["pr"]), tight).is_accepted


def without_direction(report):
    """As versions wrote it that knew no `lower_is_better`."""
    for contract in report.variants[-1].details["plan"]["values"]["heads"].values():
        del contract["lower_is_better"]
    return report


@pytest.mark.parametrize(
    ("metric", "lower_is_better", "is_accepted"),
    [
        ("abs_rel", None, True),
        ("mIoU", None, True),
        ("rmse_log", None, False),
        ("rmse_log", False, True),
    ],
)
def test_an_older_report_is_held_against_the_direction_that_its_version_assumed(
    tmp_path, metric, lower_is_better, is_accepted
):
    """It took an error of a name unknown to it for a score, and so passed a worse network."""
    contract = HeadContract(metric=metric, max_drop=0.01, lower_is_better=lower_is_better)
    budget = Budget(stages={"preprocess": 3.0, "network": 22.0}, heads={"depth": contract})
    report = without_direction(judged_by(make_report(tmp_path), budget, TIERS["pr"]))
    found = match_limits(report, budget)
    assert found.is_accepted == is_accepted
    assert is_accepted or "heads.depth.lower_is_better false instead of true" in found.detail


def test_a_network_alone_is_held_against_the_contracts_that_it_was_judged_by(tmp_path):
    def budget_of(drop):
        heads = {name: HeadContract(metric="mIoU", max_drop=drop) for name in ("road", "lanes")}
        return Budget(stages={"preprocess": 3.0, "network": 22.0, "planning": 2.0}, heads=heads)

    report = make_report(tmp_path)
    part = budget_of(0.5).for_part(report.variants[-1].run.stage_names)
    part = dataclasses.replace(part, heads={"road": budget_of(0.5).heads["road"]})
    report = judged_by(report, part, TIERS["pr"])
    assert match_limits(report, budget_of(0.5)).is_accepted
    found = match_limits(report, budget_of(0.01))
    assert "heads.road.max_drop 0.5 instead of 0.01" in found.detail


@pytest.mark.parametrize("judged", [None, "park"])
@pytest.mark.parametrize("asked", [None, "park"])
def test_a_report_of_one_driving_mode_says_nothing_of_another(tmp_path, judged, asked):
    """A network without some of its heads is faster than the one that ships with all of them."""
    heads = {name: HeadContract(metric="mIoU", max_drop=0.1) for name in ("road", "lanes")}
    budget = Budget(
        stages={"preprocess": 3.0, "network": 22.0, "planning": 2.0},
        heads=heads,
        modes={"park": ("road",)},
    )
    report = make_report(tmp_path)
    part = budget.for_part(report.variants[-1].run.stage_names)
    report = judged_by(report, part, TIERS["pr"], mode=judged)
    found = match_limits(report, budget, mode=asked)
    assert found.is_accepted == (judged == asked)
    assert found.is_accepted or "the heads of mode 'park'" in found.detail
    passed = as_passed(report)
    shipped = match_artifact(passed, tmp_path / passed.variants[-1].artifact)
    assert shipped.is_accepted
    assert ("in the driving mode 'park'" in shipped.detail) == (judged == "park")


def test_verify_refuses_a_report_of_another_budget(tmp_path, capsys):
    budget = Budget(stages={"preprocess": 3.0, "network": 22.0})
    report = judged_by(make_report(tmp_path), budget, TIERS["pr"])
    json_report.write(as_passed(report), tmp_path)
    same, other = tmp_path / "same.toml", tmp_path / "other.toml"
    same.write_text("[stages]\npreprocess = 3.0\nnetwork = 22.0\n")
    other.write_text("[stages]\npreprocess = 3.0\nnetwork = 21.0\n")
    words = ["verify", str(tmp_path / "report.json"), str(tmp_path / "model.onnx")]
    assert budget_check_main([*words, "--budget", str(same), "--tier", "pr"]) == 0
    assert budget_check_main([*words, "--budget", str(other)]) == 1
    assert "21.0" in capsys.readouterr().out
    assert budget_check_main([*words, "--tier", "pr"]) == 2


def test_verify_refuses_a_network_whose_weights_no_digest_covers(tmp_path, capsys):
    """Other weights in the file beside it would leave the digest as it is."""
    report = as_passed(make_report(tmp_path))
    path, helper = tmp_path / "model.onnx", onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((4, 8), np.float32), "w")
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4, 8]) for n in "xy"]
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", values[:1], values[1:], [weight]))
    for is_beside, code in ((False, 0), (True, 1)):
        onnx.save(model, path, save_as_external_data=is_beside, location="w.bin", size_threshold=0)
        measured = dataclasses.replace(report.variants[-1], sha256=sha256_file(path))
        made = dataclasses.replace(report, variants=(*report.variants[:-1], measured))
        json_report.write(made, tmp_path)
        assert budget_check_main(["verify", str(tmp_path / "report.json"), str(path)]) == code
    assert "files beside it" in capsys.readouterr().out


def run_action(tmp_path, latency_ms, folder=Path(sys.executable).parent, **environment):
    script = ROOT / ".github" / "actions" / "budget-check" / "check.sh"
    (tmp_path / "budget.toml").write_text(
        "[frame]\nrate_hz = 30\ndeadline_ms = 33.0\n[environment]\nmode = 'report'\n"
    )
    rows = "\n".join(f"{latency_ms + index % 7 * 0.01:.2f}" for index in range(1000))
    (tmp_path / "frames.csv").write_text(f"latency_ms\n{rows}\n")
    files = {"GITHUB_OUTPUT": tmp_path / "output", "GITHUB_STEP_SUMMARY": tmp_path / "summary"}
    values = {
        "BUDGET": "budget.toml", "MODEL": "", "PIPELINE": "", "TIER": "pr", "BASE": "",
        "SAMPLES": "frames.csv", "LEDGER": "", "HISTORY": "history.jsonl", "OUT": "out",
        "ARGUMENTS": "",
        "GITHUB_SHA": "0123456789abcdef", **environment,
    }  # fmt: skip
    done = subprocess.run(
        ["bash", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        env={
            **os.environ,
            **values,
            **{name: str(path) for name, path in files.items()},
            "PATH": f"{folder}:{os.environ['PATH']}",
        },
    )
    return done, {name: path.read_text() for name, path in files.items() if path.exists()}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_action_ends_with_the_checks_exit_code_and_shows_why(tmp_path):
    done, files = run_action(tmp_path, 20.0)
    assert done.returncode == 0, done.stderr
    assert files["GITHUB_OUTPUT"] == "verdict=pass\n"
    assert MARKER in files["GITHUB_STEP_SUMMARY"]
    assert (tmp_path / "out" / "comment.md").exists()
    assert "::error" not in done.stdout
    done, files = run_action(tmp_path, 40.0, GITHUB_SHA="f" * 16)
    assert done.returncode == 1
    assert "verdict=fail" in files["GITHUB_OUTPUT"]
    assert "::error title=fail%3A frame P99::" in done.stdout
    history = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [point["label"] for point in history] == ["012345678", "fffffffff"]
    assert [point["verdict"] for point in history] == ["pass", "fail"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_action_passes_every_line_of_its_inputs_on(tmp_path):
    noted = tmp_path / "tools" / "budget-check"
    noted.parent.mkdir()
    noted.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$@" >given\nexit 4\n')
    noted.chmod(0o755)
    lines = "--environment report\n--baseline  *.json\n"
    run_action(tmp_path, 20.0, noted.parent, LEDGER="kept here/tries.jsonl", ARGUMENTS=lines)
    given = (tmp_path / "given").read_text().splitlines()
    assert given[-8:] == [
        *("--samples", "frames.csv", "--ledger", "kept here/tries.jsonl"),
        *("--environment", "report", "--baseline", "*.json"),
    ]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_action_shows_no_report_of_an_earlier_check(tmp_path):
    assert run_action(tmp_path, 40.0)[0].returncode == 1
    (tmp_path / "summary").unlink()
    unfit = tmp_path / "tools" / "budget-check"
    unfit.parent.mkdir()
    unfit.write_text("#!/usr/bin/env bash\nexit 4\n")
    unfit.chmod(0o755)
    done, files = run_action(tmp_path, 40.0, unfit.parent)
    assert done.returncode == 4
    assert done.stdout == ""
    assert "GITHUB_STEP_SUMMARY" not in files
    assert files["GITHUB_OUTPUT"].endswith("verdict=invalid\n")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_action_runs_no_code_of_its_inputs(tmp_path):
    done, files = run_action(tmp_path, 20.0, BUDGET='budget.toml"; touch forged; "')
    assert done.returncode == 2
    assert not (tmp_path / "forged").exists()
    assert files["GITHUB_OUTPUT"] == "verdict=\n"
    (annotation,) = done.stdout.splitlines()
    assert annotation.startswith("::error title=framefit budget-check::error: cannot read the")
    assert annotation.removeprefix("::error title=framefit budget-check::") in done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_action_says_why_nothing_was_judged(tmp_path):
    broken = tmp_path / "tools" / "budget-check"
    broken.parent.mkdir()
    broken.write_text(
        "#!/usr/bin/env bash\necho text\necho '[1/5] load' 'error: 5%0A::x' >&2\nexit 5\n"
    )
    broken.chmod(0o755)
    done, files = run_action(tmp_path, 40.0, broken.parent)
    assert done.returncode == 5
    assert done.stdout == "text\n::error title=framefit budget-check::[1/5] load error: 5%250A::x\n"
    assert done.stderr == "[1/5] load error: 5%0A::x\n"
    assert files["GITHUB_OUTPUT"] == "verdict=\n"


def test_the_action_and_the_example_are_whole():
    action = (ROOT / ".github/actions/budget-check/action.yml").read_text()
    run = action.split("run: ", 1)[1]
    assert "${{" not in run
    names = re.findall(r"^        ([A-Z]+): \$\{\{ inputs\.(\w+) \}\}$", action, re.MULTILINE)
    assert all(name.lower() == key for name, key in names)
    assert len(names) == 10
