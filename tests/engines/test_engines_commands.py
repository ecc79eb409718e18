"""`framefit engines` as typed."""

import json

import numpy as np
import onnx
import pytest

from framefit.cli import main


@pytest.fixture
def data(tmp_path, image):
    path = tmp_path / "data.npz"
    np.savez(path, image=np.concatenate([image, -image, 2 * image]))
    return str(path)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_says_what_works_and_why_not(capsys, tmp_path):
    assert main(["engines", "list", "--json", "list.json"]) == 0
    output = capsys.readouterr().out
    runtimes = json.loads((tmp_path / "list.json").read_text())["runtimes"]
    for runtime in runtimes:
        assert runtime["name"] in output
        assert runtime["available"] != bool(runtime["reason"])


def test_targets_lists_the_devices(capsys):
    assert main(["engines", "targets"]) == 0
    output = capsys.readouterr().out
    assert "JetPack 6.x: 10.x only" in output
    assert "h200" in output


def test_run_writes_what_the_session_returns(model_path, data, tmp_path, capsys, image):
    from engines.runtimes import open_session

    arguments = ["engines", "run", str(model_path), "--data", data, "--out", "out.npz"]
    assert main([*arguments, "--json", "run.json"]) == 0
    assert "3 samples" in capsys.readouterr().out
    with np.load("out.npz") as outputs, open_session(model_path) as session:
        assert outputs["zone"].shape == (3, 4, 8, 10)
        np.testing.assert_array_equal(outputs["zone"][1:2], session.run({"image": -image})["zone"])
    summary = json.loads((tmp_path / "run.json").read_text())["outputs"]["zone"]
    assert summary["min"] == 0
    assert summary["not_finite"] == 0


def test_bench_takes_turns_and_reports_nearest_rank_percentiles(model_path, tmp_path, capsys):
    path = str(model_path)
    arguments = ["engines", "bench", path, path, "--runs", "103", "--warmup", "1"]
    assert main([*arguments, "--json", "bench.json"]) == 0
    first, second = json.loads((tmp_path / "bench.json").read_text())["models"]
    for result in (first, second):
        assert result["n"] == 103
        assert 0 < result["p50_ms"] <= result["p95_ms"] <= result["p99_ms"] <= result["max_ms"]
    assert "first / this" in capsys.readouterr().out


def test_bench_reports_no_p99_from_too_few_runs(model_path, tmp_path):
    arguments = ["engines", "bench", str(model_path), "--runs", "20", "--json", "bench.json"]
    assert main(arguments) == 0
    (result,) = json.loads((tmp_path / "bench.json").read_text())["models"]
    assert result["p99_ms"] is None
    assert result["p50_ms"] is not None


def test_compare_tells_two_runtimes_apart_from_one(model_path, data, tmp_path):
    arguments = ["engines", "compare", str(model_path), "--data", data, "--json", "compare.json"]
    assert main(arguments) == 2
    assert main([*arguments, "--reference-runtime", "onnxruntime"]) == 0
    found = json.loads((tmp_path / "compare.json").read_text())
    assert found["outputs"]["zone"]["sqnr_db"] > 80
    assert main([*arguments, "--runtime", "null"]) == 0
    found = json.loads((tmp_path / "compare.json").read_text())
    assert found["outputs"]["zone"]["sqnr_db"] < 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "missing.onnx", "--data", "x.npz"], "missing.onnx"),
        (["run", "MODEL", "--data", "missing.npz"], "missing.npz"),
        (["run", "MODEL", "--data", "DATA", "--runtime", "tensorrt"], "a .plan file"),
        (["run", "MODEL", "--data", "DATA", "--cuda-graph"], "CUDA graph"),
        (["run", "MODEL", "--data", "DATA", "--out", "out.txt"], "ends in .npz"),
        (["run", "MODEL", "--data", "DATA", "--input-shape", "0,3"], "--input-shape"),
        (["bench", "MODEL", "--runs", "3"], "at least 5"),
        (["bench", "MODEL", "--runtime", "tflite"], "tflite"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, complaint, model_path, data, capsys):
    named = {"MODEL": str(model_path), "DATA": data}
    assert main(["engines", *(named.get(part, part) for part in arguments)]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def damage_twice(model):
    model.graph.initializer.append(model.graph.initializer[0])


def damage_weights(model):
    shape = list(model.graph.initializer[0].dims)
    worn = onnx.numpy_helper.from_array(np.full(shape, np.nan, np.float32), "worn")
    worn.name = model.graph.initializer[0].name
    model.graph.initializer[0].CopyFrom(worn)


def damage_opset(model):
    model.opset_import[0].version = 999


def damage_version(model):
    model.ir_version = 99


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_twice, "more than once"),
        (damage_weights, "NaN"),
        (damage_opset, "uses opset 999"),
        (damage_version, "has IR version 99"),
    ],
)
@pytest.mark.parametrize("command", ["run", "bench", "compare"])
def test_what_a_runtime_opens_though_it_is_damaged_is_refused(
    model_path, data, tmp_path, capsys, command, damage, message
):
    """OpenVINO runs all of these without a word."""
    model = onnx.load(model_path)
    damage(model)
    path = tmp_path / "damaged.onnx"
    onnx.save(model, path)
    rest = {
        "run": [str(path), "--data", data],
        "bench": [str(path)],
        "compare": [str(model_path), str(path), "--data", data],
    }
    assert main(["engines", command, *rest[command]]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
