import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from framefit.cli import budget_check_main, main
from latency_budget.report_extras import StageOption

_SPEC = importlib.util.spec_from_file_location(
    "small_networks", Path(__file__).parents[1] / "latency_budget/why/small_networks.py"
)
small_networks = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(small_networks)


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "two_heads.onnx"
    path.write_bytes(small_networks.two_heads().SerializeToString())
    return str(path)


@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_profile_sums_by_owner(network, tmp_path, runtime, capsys):
    out = tmp_path / "profile.json"
    arguments = ["--runtime", runtime, "--runs", "3", "--json", str(out)]
    assert main(["engines", "profile", network, *arguments]) == 0
    result = json.loads(out.read_text())
    assert set(result["owners_ms"]) <= {"trunk", "a", "b"}
    assert sum(layer["operations"] or 0 for layer in result["layers"]) > 0
    assert "unattributed" in capsys.readouterr().out


def test_roofline_names_the_wall_and_marks_predictions(network, tmp_path, capsys):
    out = tmp_path / "roofline.json"
    assert main(["engines", "roofline", network, "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert result["wall"] in ("compute", "bandwidth", "overhead")
    assert result["advice"]
    assert result["machine"]["measured"] is True
    names = {item["target"] for item in result["predictions"]}
    assert {"v100", "a100", "h100", "h200", "b200", "orin", "thor", "sa8650p"} <= names
    assert all(item["predicted"] for item in result["predictions"])
    assert "predicted, not measured" in capsys.readouterr().out


def test_roofline_without_measuring_needs_no_runtime(network, tmp_path):
    out = tmp_path / "roofline.json"
    arguments = ["--no-measure", "--target", "a100", "--json", str(out)]
    assert main(["engines", "roofline", network, *arguments]) == 0
    result = json.loads(out.read_text())
    assert "measured_ms" not in result
    assert [item["target"] for item in result["predictions"]] == ["a100"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("roofline", "--target", "orinn"),
        ("profile", "--runtime", "null"),
        ("profile", "--onnx", "missing.onnx"),
    ],
)
def test_mistakes_are_bad_input(network, arguments):
    assert main(["engines", arguments[0], network, *arguments[1:]]) == 2


def test_options_are_measured_for_each_shape_and_shown_in_the_page(network, tmp_path):
    out = tmp_path / "options.json"
    arguments = [f"float={network}", f"INT8={network}", "--runs", "10", "--out", str(out)]
    assert main(["engines", "options", *arguments]) == 0
    found = [StageOption.from_dict(item) for item in json.loads(out.read_text())]
    shapes = [tuple(option.settings.values()) for option in found]
    assert len(set(shapes)) == len(shapes) == 2 * 4
    assert found[-1].settings == {
        "precision": "INT8",
        "backbone": "shared",
        "a": "on",
        "b": "on",
    }
    assert {option.settings["backbone"] for option in found} == {"shared", "one per head"}

    rows = np.full(400, 20.0)
    (tmp_path / "frames.csv").write_text(
        "latency_ms,network_ms\n" + "\n".join(f"{value},18" for value in rows)
    )
    (tmp_path / "budget.toml").write_text("[frame]\nrate_hz = 30\ndeadline_ms = 33.0\n")
    report = tmp_path / "out"
    budget = ["--budget", str(tmp_path / "budget.toml"), "--out", str(report)]
    budget_check_main([*budget, "--samples", str(tmp_path / "frames.csv")])
    again = ["report", str(report / "report.json"), "--out", str(report)]
    extras = ["--options", str(out), "--model", network]
    assert budget_check_main([*again, *extras]) == 0
    page = (report / "report.html").read_text()
    assert "network, backbone" in page
    assert "Which wall the network stands at" in page


@pytest.mark.parametrize("models", [["a"], ["=x"], ["a=b", "a=c"], ["a=missing.onnx"]])
def test_wrongly_named_models_are_bad_input(models, tmp_path):
    assert main(["engines", "options", *models, "--out", str(tmp_path / "o.json")]) == 2
