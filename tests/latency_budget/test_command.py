import json
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from artifacts.errors import FramefitError, InputError
from framefit.cli import budget_check_main
from framefit.commands.budget import app
from framefit.first_budget import _warn_of_disturbance
from latency_budget.environment import Check, Environment

BUDGET = """
[stages]
network = 22.0
planning = 5.0
[heads.detection]
metric = "mAP50"
max_drop = 0.01
[environment]
mode = "report"
"""
FAST_BUDGET = """
[frame]
rate_hz = 200
deadline_ms = 5
[stages]
network = 4
planning = 1
[environment]
mode = "report"
"""
NOT_PROVEN = (1, 3)  # a busy machine may even fail; twenty frames never pass
QUALITY = {"detection": {"metric": "mAP50", "reference": 0.6, "candidate": 0.595}}


def run(*arguments):
    """Runs the command; errors carry the exit code that `framefit.cli` gives them."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, FramefitError):
        return result.exception.exit_code, str(result.exception)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Attempts are counted in the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def budget(tmp_path):
    path = tmp_path / "budget.toml"
    path.write_text(BUDGET)
    return path


@pytest.fixture
def fast(tmp_path):
    path = tmp_path / "fast.toml"
    path.write_text(FAST_BUDGET)
    return path


@pytest.fixture
def quality(tmp_path):
    path = tmp_path / "quality.json"
    path.write_text(json.dumps(QUALITY))
    return path


def test_a_report_that_cannot_be_written_is_refused_first_and_the_verdict_shown(
    budget, quality, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    arguments = ["check", "--budget", budget, "--quality", quality, "--samples"]
    code, error = run(*arguments, tmp_path / "none.npz", "--out", tmp_path / "file")
    assert code == 2
    assert "cannot write" in error
    samples = write_samples(tmp_path / "s.npz", 18)

    def fail(report, folder):
        raise InputError("no space left")

    monkeypatch.setattr("latency_budget.reports.write_report", fail)
    given = [str(argument) for argument in (*arguments, samples, "--out", tmp_path / "o")]
    result = CliRunner().invoke(app, given)
    assert isinstance(result.exception, InputError)
    assert "PASS: s.npz keeps its frame budget" in result.stdout


def write_samples(path, centre, n=1000):
    network = np.random.default_rng(1).normal(centre, 0.2, n)
    np.savez(path, latency_ms=network + 3, network_ms=network, planning_ms=np.full(n, 2.0))
    return path


@pytest.fixture
def model(tmp_path):
    helper = onnx.helper
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "tiny",
        [tensor("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])],
        [tensor("y", onnx.TensorProto.FLOAT, [1, 3, 8, 8])],
    )
    path = tmp_path / "tiny.onnx"
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("centre", "frames", "code", "word"),
    [(18, 1000, 0, "PASS"), (40, 1000, 1, "FAIL"), (18, 100, 3, "INCONCLUSIVE")],
)
def test_recorded_samples_get_their_exit_code(
    tmp_path, budget, quality, centre, frames, code, word
):
    samples = write_samples(tmp_path / "s.npz", centre, frames)
    out = tmp_path / "out"
    found, text = run(
        "check", "--budget", budget, "--samples", samples, "--quality", quality, "--out", out,
        "--json", tmp_path / "r.json",
    )  # fmt: skip
    assert found == code
    assert text.strip().splitlines()[-1].startswith(f"{word}: ")
    assert json.loads((out / "report.json").read_text())["verdict"] == word.lower()
    assert (tmp_path / "r.json").read_text() == (out / "report.json").read_text()


def test_latencies_of_one_stage_are_judged_as_a_part_of_the_frame(tmp_path):
    """What trtexec times is no frame: 24 ms keep a deadline of 33, and no budget of 22."""
    (tmp_path / "b.toml").write_text("[stages]\nnetwork = 22\nplanning = 5\n")
    for centre, code in ((20, 0), (24, 1)):
        samples = tmp_path / "s.npz"
        np.savez(samples, latency_ms=np.random.default_rng(1).normal(centre, 0.2, 1000))
        check = ["check", "--budget", tmp_path / "b.toml", "--samples", samples]
        found, text = run(*check, "--stage", "network", "--json", tmp_path / "report.json")
        assert found == code
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["frame"]["deadline_ms"] == 28
        assert {"part P99", "stage network P99"} < {gate["name"] for gate in report["gates"]}
        assert "not the whole frame" in " ".join(report["notes"])
    assert run(*check, "--stage", "network", "--baseline", tmp_path / "report.json")[0] == 1
    assert "a part of the frame" in run(*check, "--baseline", tmp_path / "report.json")[1]
    for words, message in (
        (["--samples", samples, "--stage", "netwrk"], "did you mean 'network'"),
        (["--samples", tmp_path / "report.json", "--stage", "network"], "is a report"),
        (["model.onnx", "--stage", "network"], "without --samples"),
    ):
        code, text = run("check", "--budget", tmp_path / "b.toml", *words)
        assert (code, message in text) == (2, True)


def test_a_stopped_clock_is_invalid(tmp_path, budget, quality):
    (tmp_path / "s.csv").write_text("latency_ms\n" + "nan\n" * 500)
    found, text = run(
        "check", "--budget", budget, "--samples", tmp_path / "s.csv", "--quality", quality
    )
    assert found == 4
    assert "INVALID" in text


def test_a_contract_without_quality_is_inconclusive(tmp_path, budget):
    samples = write_samples(tmp_path / "s.npz", 18)
    assert run("check", "--budget", budget, "--samples", samples)[0] == 3


def test_a_broken_contract_fails(tmp_path, budget, quality):
    QUALITY_BAD = {"detection": {"metric": "mAP50", "reference": 0.6, "candidate": 0.5}}
    quality.write_text(json.dumps(QUALITY_BAD))
    samples = write_samples(tmp_path / "s.npz", 18)
    found, text = run("check", "--budget", budget, "--samples", samples, "--quality", quality)
    assert found == 1
    assert "head detection mAP50" in text.splitlines()[-1]


def test_a_slower_build_than_the_baseline_fails(tmp_path, budget, quality):
    first = write_samples(tmp_path / "a.npz", 18)
    common = ("check", "--budget", budget, "--quality", quality)
    assert run(*common, "--samples", first, "--json", tmp_path / "base.json")[0] == 0
    second = write_samples(tmp_path / "b.npz", 19)
    found, text = run(*common, "--samples", second, "--baseline", tmp_path / "base.json")
    assert found == 1
    assert "no slower than before" in text
    again = tmp_path / "base.json"
    assert run(*common, "--samples", again, "--baseline", tmp_path / "base.json")[0] == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ('{"a": {"metric": "mAP50", "reference": 0.6, "candidate": true}}', "True is no number"),
        ('{"a": {"metric": "mAP50", "reference": "0.6", "candidate": 0.6}}', "'0.6' is no number"),
        ('{"a": {}, "a": {}}', "the key 'a' appears twice"),
    ],
)
def test_a_quality_that_says_two_things_or_no_number_is_refused(
    tmp_path, budget, quality, values, message
):
    quality.write_text(values)
    samples = write_samples(tmp_path / "s.npz", 18)
    found, text = run("check", "--budget", budget, "--samples", samples, "--quality", quality)
    assert found == 2
    assert message in text


@pytest.mark.parametrize(
    ("place", "value", "gate"),
    [
        ("environment", [{"name": "steal", "verdict": "invalid", "detail": "9 %"}], "environment"),
        ("session", {"precision": {"asked": "int8", "got": "f32"}}, "asked versus got"),
    ],
)
def test_an_invalid_run_stays_invalid_when_its_samples_are_judged_again(
    tmp_path, budget, quality, place, value, gate
):
    arguments = ("check", "--budget", budget, "--quality", quality, "--environment", "enforce")
    samples = write_samples(tmp_path / "s.npz", 18)
    assert run(*arguments, "--samples", samples, "--json", tmp_path / "r.json")[0] == 0
    assert run(*arguments, "--samples", tmp_path / "r.json")[0] == 0
    report = json.loads((tmp_path / "r.json").read_text())
    if place == "session":
        report["variants"][-1]["details"]["session"] = value
    else:
        report["environment"] = {"verdict": "invalid", "checks": value, "machine": {}}
    (tmp_path / "r.json").write_text(json.dumps(report))
    found, text = run(*arguments, "--samples", tmp_path / "r.json")
    assert found == 4
    assert gate in text.splitlines()[-1]


@pytest.mark.parametrize("command", [["check", "--budget", "fast.toml"], ["init", "new.toml"]])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("scale", "has a scale of NaN"),
        ("link", "is a hard link"),
        ("weight", "tensor 'w' in net.onnx has 1 of 64 values that are NaN"),
        ("twice", "net.onnx defines the value 'd' more than once"),
        ("cut", "tensor 'w' in net.onnx has 255 bytes; expected 256"),
        ("random", "draws random numbers with a scale of 0; expected a scale above 0"),
    ],
)
@pytest.mark.usefixtures("fast")
def test_networks_that_a_runtime_opens_all_the_same_are_refused(tmp_path, command, damage, message):
    """Rows 37 and 61."""
    helper, path = onnx.helper, tmp_path / "net.onnx"
    scale = np.full(1, np.nan if damage == "scale" else 0.1, np.float32)
    weights = {"w": np.ones((1, 64), np.float32), "s": scale[0], "z": np.int8(0)}
    weights["w"][0, 9] = np.nan if damage == "weight" else np.inf
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 64]) for n in "xy"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Add", ["d", "w"], ["y"]),
    ]
    nodes += nodes[1:2] if damage == "twice" else []
    if damage == "random":
        nodes.append(helper.make_node("RandomNormal", [], ["r"], scale=0.0, shape=[1, 64]))
    constants = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()]
    constants[0].raw_data = constants[0].raw_data[: 255 if damage == "cut" else 256]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    is_linked = damage == "link"
    onnx.save(model, path, save_as_external_data=is_linked, location="w.bin", size_threshold=64)
    if is_linked:
        (tmp_path / "other.bin").hardlink_to(tmp_path / "w.bin")
    found, text = run(*command, path.name)
    assert found == 2
    assert message in text


@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_a_model_is_measured_as_the_stage_network(tmp_path, fast, model, runtime):
    found, text = run(
        "check", "--budget", fast, model, "--frames", 20, "--warmup", 5, "--runtime", runtime,
        "--json", tmp_path / "r.json",
    )  # fmt: skip
    assert found in NOT_PROVEN
    assert "Only network was measured" in text.replace("\n", " ")
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["frame"]["deadline_ms"] == 4
    variant = content["variants"][0]
    assert (variant["runtime"], variant["artifact"]) == (runtime, "tiny.onnx")
    assert variant["network_ms"]["n"] == 20
    assert "asked versus got" in {gate["name"] for gate in content["gates"]}


def test_a_model_takes_given_inputs(tmp_path, fast, model):
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 3, 8, 8), np.float32))
    arguments = ("check", "--budget", fast, model, "--frames", 5, "--warmup", 0, "--data")
    assert run(*arguments, tmp_path / "d.npz")[0] in NOT_PROVEN
    assert run(*arguments, tmp_path / "none.npz")[0] == 2


PIPELINE = """
import time
from latency_budget import Stage

def frame(model=None):
    stages = [Stage("network", lambda x: time.sleep(0.002)), Stage("planning", lambda x: x)]
    return stages, range(5)

def wrong():
    return 3

PICTURES = [1]

def uneven():
    return 3, [1]

def one_payload():
    return [Stage("network", print)], {"image": 1}

def nameless():
    return [Stage("", print)], [1]

def fails():
    raise OSError("no camera")

def rewrites(model):
    return [Stage("network", lambda x: model.write_bytes(b"another network"))], [0]

def removes(model):
    return [Stage("network", lambda x: model.unlink(missing_ok=True))], [0]

def broken():
    def fail(x):
        raise RuntimeError("no camera")
    return [Stage("network", fail)], [0]
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_frame_for_test.py").write_text(textwrap.dedent(PIPELINE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "my_frame_for_test"
    sys.modules.pop("my_frame_for_test", None)


def test_a_pipeline_is_the_whole_frame(tmp_path, fast, module, model):
    found, _ = run(
        "check", "--budget", fast, model, "--pipeline", f"{module}:frame", "--frames", 20,
        "--warmup", 2, "--json", tmp_path / "r.json", "--policy", "latest",
    )  # fmt: skip
    assert found in NOT_PROVEN
    variant = json.loads((tmp_path / "r.json").read_text())["variants"][0]
    assert [stage["name"] for stage in variant["stages"]] == ["network", "planning"]
    assert variant["details"]["is_whole_frame"] is True
    assert variant["artifact"] == "tiny.onnx"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rewrites", "changed while it was measured"),
        ("removes", "cannot be read any more: No such file"),
    ],
)
def test_a_verdict_never_names_a_file_that_came_after_the_measurement(
    fast, module, model, name, message
):
    found, text = run(
        "check", "--budget", fast, model, "--pipeline", f"{module}:{name}", "--frames", 5
    )
    assert found == 2
    assert message in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{}:wrong", "returned a int"),
        ("{}:none", "has no 'none'"),
        ("no_such_module_here:f", "cannot import"),
        ("nonsense", "package.module:function"),
        ("{}:PICTURES", "is a list"),
        ("{}:uneven", "returned (int, list)"),
        ("{}:nameless", "a stage's name is ''"),
        ("{}:one_payload", "are one dict; expected a sequence of payloads"),
        ("{}:fails", "raised OSError: no camera; try it"),
        ("{}:broken", "stage 'network' raised RuntimeError on frame 0: no camera"),
    ],
)
def test_wrong_pipelines_are_bad_input(fast, module, name, message):
    found, text = run("check", "--budget", fast, "--pipeline", name.format(module), "--frames", 5)
    assert found == 2
    assert message in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no MODEL was given"),
        (["none.onnx"], "none.onnx"),
        (["--samples", "none.csv"], "cannot read none.csv"),
        (["--samples", "a.csv", "m.onnx"], "one of them"),
        (["--samples", "a.csv", "--tier", "nightli"], "did you mean 'nightly'"),
        (["--samples", "a.csv", "--frames", "0"], "--frames is 0"),
        (
            ["model.onnx", "--frames", str(10**11)],
            "--frames is 100000000000; expected 1 to 10000000",
        ),
        (["model.onnx", "--warmup", str(10**11)], "and 0 to 10000000 frames"),
        (["model.onnx", "--sweep", str(10**11)], "--sweep is 100000000000"),
        (["--samples", "a.csv", "--environment", "off"], "--environment is 'off'"),
        (["--samples", "a.csv", "--policy", "newest"], "--policy newest"),
        (["--samples", "a.csv", "--frames", "900"], "--frames would do nothing"),
        (["--samples", "a.csv", "--sweep", "0", "--policy", "fifo"], "--policy, --sweep would"),
        (["--samples", "a.csv", "--runtime", "tensorrt"], "recorded already"),
        (["--pipeline", "a:b", "--threads", "1"], "--threads would do nothing"),
        (["--samples", "a.csv", "--quality", "none.json"], "none.json"),
        (["--samples", "a.csv", "--baseline", "none.json"], "none.json"),
        (["--pipeline", "a:b", "--against", "m.onnx"], "--against was given without MODEL"),
        (["m.onnx", "--against", "m.onnx", "--restarts", "2"], "--restarts is 2; expected 5"),
    ],
)
def test_wrong_use_is_exit_two(tmp_path, budget, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    found, text = run("check", "--budget", budget, *arguments)
    assert found == 2
    assert message in text


def test_a_missing_budget_is_exit_two(tmp_path):
    found, text = run("check", "--budget", tmp_path / "none.toml", "--samples", "a.csv")
    assert found == 2
    assert "cannot read the budget" in text


def test_an_unwritable_output_is_exit_two(tmp_path, budget, quality):
    samples = write_samples(tmp_path / "s.npz", 18)
    (tmp_path / "file").write_text("kept")
    found, text = run(
        "check", "--budget", budget, "--samples", samples, "--quality", quality,
        "--out", tmp_path / "file" / "out",
    )  # fmt: skip
    assert found == 2
    assert "cannot write" in text
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("centre", "frames", "options", "code"),
    [
        (18, 1000, [], 0),
        (40, 1000, [], 1),
        (18, 1000, ["--tier", "nightli"], 2),
        (18, 100, [], 3),
        (18, 1000, ["--environment", "strict"], 4),
        (18, 1000, ["--out", "crash"], 5),
    ],
)
def test_the_installed_command_ends_with_each_exit_code(
    tmp_path, budget, quality, monkeypatch, capsys, centre, frames, options, code
):
    samples = write_samples(tmp_path / "s.npz", centre, frames)
    monkeypatch.chdir(tmp_path)
    if code == 5:
        monkeypatch.setattr("latency_budget.reports.write_report", lambda *_: 1 / 0)
    arguments = ["--budget", budget, "--samples", samples, "--quality", quality, *options]
    assert budget_check_main([str(argument) for argument in arguments]) == code
    if code == 0:
        assert budget_check_main(["check", *(str(argument) for argument in arguments)]) == code
    errors = capsys.readouterr().err
    assert (errors.startswith("error: ") and errors.count("\n") == 1) or code not in (2, 5)


def test_init_writes_a_budget_once(tmp_path):
    samples = write_samples(tmp_path / "s.npz", 18)
    out = tmp_path / "new.toml"
    assert run("init", out, "--samples", samples)[0] == 0
    assert run("check", "--budget", out, "--samples", samples)[0] == 0
    before = out.read_text()
    assert run("init", out, "--samples", samples, "--rate-hz", 25)[0] == 2
    assert out.read_text() == before
    assert run("init", out, "--samples", samples, "--rate-hz", 25, "--force")[0] == 0
    assert "rate_hz = 25" in out.read_text()


def test_init_says_what_was_measured_beside_limits_that_are_given(tmp_path):
    samples = write_samples(tmp_path / "s.npz", 60)
    out = tmp_path / "new.toml"
    assert run("init", out, "--samples", samples)[0] == 0
    (line,) = [line for line in out.read_text().splitlines() if line.startswith("deadline_ms")]
    assert line.startswith("deadline_ms = 33.3   # measured P99: 6")
    assert line.endswith("so these frames miss it")
    assert run("check", "--budget", out, "--samples", samples)[0] == 1


def test_a_budget_from_a_disturbed_machine_is_warned_of(caplog):
    checks = (Check("no-op control", "invalid", "worst 9 ms"), Check("clock", "warn", "other"))
    _warn_of_disturbance(Environment(checks))
    (warning,) = caplog.messages
    assert "no-op control: worst 9 ms" in warning
    assert "other" not in warning
    caplog.clear()
    _warn_of_disturbance(Environment(checks[1:]))
    assert not caplog.messages


@pytest.mark.parametrize("options", [(), ("--force",)])
def test_init_does_not_take_a_network_for_the_budget(model, options):
    before = model.read_bytes()
    found, text = run("init", model, *options)
    assert found == 2
    assert "budget-check init budget.toml MODEL" in text
    assert model.read_bytes() == before


def test_init_refuses_what_it_would_ignore(tmp_path):
    samples = write_samples(tmp_path / "s.npz", 18)
    found, text = run("init", tmp_path / "b.toml", "--samples", samples, "--frames", 10)
    assert found == 2
    assert "--frames would do nothing" in text


def test_init_measures_a_model(tmp_path, model):
    out = tmp_path / "new.toml"
    found, text = run("init", out, model, "--frames", 30, "--rate-hz", 200)
    assert found == 0, text
    content = out.read_text()
    assert "deadline_ms = 5" in content
    assert "network" in content
    assert '# [heads."y"]' in content
    assert run("check", "--budget", out, model, "--frames", 5, "--warmup", 0)[0] in (1, 3, 4)
    assert run("init", tmp_path / "other.toml")[0] == 2


def test_init_measures_a_model_on_given_inputs(tmp_path, model):
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 3, 8, 8), np.float32))
    arguments = ("init", tmp_path / "new.toml", model, "--frames", 5, "--rate-hz", 200, "--data")
    assert run(*arguments, tmp_path / "d.npz")[0] == 0
    np.savez(tmp_path / "small.npz", x=np.zeros((4, 3, 4, 4), np.float32))
    assert run(*arguments, tmp_path / "small.npz", "--force")[0] == 2


def test_a_folder_that_cannot_be_written_stops_only_a_tier_with_planned_attempts(
    tmp_path, fast, model
):
    (tmp_path / ".framefit").write_text("no folder")
    arguments = ("check", "--budget", fast, model, "--frames", 20, "--warmup", 0)
    assert run(*arguments, "--tier", "smoke")[0] in NOT_PROVEN
    found, text = run(*arguments, "--tier", "release", "--restarts", 1)
    assert found == 2
    assert "--ledger" in text


def test_each_attempt_is_counted_and_the_plan_is_in_the_report(tmp_path, fast, model):
    arguments = (
        "check", "--budget", fast, model, "--frames", 5, "--warmup", 0, "--json",
        tmp_path / "r.json",
    )  # fmt: skip
    found = []
    for _ in range(2):
        run(*arguments)
        content = json.loads((tmp_path / "r.json").read_text())
        found.append(content["variants"][0]["details"]["plan"])
    assert [plan["attempt"] for plan in found] == [1, 2]
    assert found[0]["sha256"] == found[1]["sha256"]
    assert found[0]["values"]["artifact_sha256"] == content["variants"][0]["sha256"]
    assert len((tmp_path / ".framefit/attempts.jsonl").read_text().splitlines()) == 2


def test_a_mode_measures_only_its_heads(tmp_path, fast, model):
    fast.write_text(FAST_BUDGET + '[modes.night]\nheads = ["y"]\n')
    found, text = run(
        "check", "--budget", fast, model, "--mode", "night", "--frames", 5, "--warmup", 0
    )
    assert found in NOT_PROVEN
    assert "Mode night" in text.replace("\n", " ")
    assert run("check", "--budget", fast, model, "--mode", "nigt")[0] == 2


@pytest.mark.slow
def test_a_build_is_measured_in_turns_with_an_older_one(tmp_path, fast, model):
    found, _ = run(
        "check", "--budget", fast, model, "--against", model, "--frames", 20, "--warmup", 0,
        "--json", tmp_path / "r.json",
    )  # fmt: skip
    assert found in NOT_PROVEN
    content = json.loads((tmp_path / "r.json").read_text())
    assert "no slower side by side" in {gate["name"] for gate in content["gates"]}
    assert len(content["variants"][0]["details"]["processes"]) == 5


def test_the_installed_command_has_init_and_selftest(tmp_path, capsys):
    assert budget_check_main(["selftest", "--quick", "--json", str(tmp_path / "s.json")]) == 0
    outcomes = json.loads((tmp_path / "s.json").read_text())
    assert all(outcome["is_right"] for outcome in outcomes)
    assert "faults got the right verdict" in capsys.readouterr().out
    assert budget_check_main(["init"]) == 2


def test_a_deadline_beyond_the_period_is_said_to_be_cut(budget, tmp_path):
    budget.write_text("[frame]\ndeadline_ms = 50.0")
    samples = write_samples(tmp_path / "s.npz", 18)
    _, text = run("check", "--budget", budget, "--samples", samples)
    assert "50 ms is longer than a frame period at 30 Hz: 33.33 ms are judged" in text
    budget.write_text("[frame]\ndeadline_ms = 33.0")
    assert "is longer" not in run("check", "--budget", budget, "--samples", samples)[1]


@pytest.mark.parametrize(
    "words",
    [
        *(["--budget", "budget.toml", "--samples", f"endless.{kind}"]
          for kind in ("csv", "json", "jsonl", "npz")),
        ["--budget", "endless.toml", "model.onnx"],
        ["--budget", "budget.toml", "--samples", "one.csv", "--quality", "endless.json"],
        ["--budget", "budget.toml", "--samples", "one.csv", "--baseline", "endless.json"],
        ["report", "endless.json"],
        ["verify", "endless.json", "budget.toml"],
    ],
)  # fmt: skip
def test_a_device_as_a_file_is_bad_input(words, tmp_path, monkeypatch, capsys):
    """/dev/zero has no end; each command read it until memory was used up."""
    monkeypatch.chdir(tmp_path)
    named = next(word for word in words if word.startswith("endless"))
    Path(named).symlink_to("/dev/zero")
    Path("budget.toml").write_text("[frame]\nrate_hz = 30\ndeadline_ms = 33\n")
    Path("one.csv").write_text("latency_ms\n10\n")
    assert budget_check_main(words) == 2
    assert f"{named}: neither a file nor a pipe" in capsys.readouterr().err
