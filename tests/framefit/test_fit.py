"""`framefit fit` on small networks.

Budgets are checked in processes that measure for real; what a busy machine could make of that is
decided for it, but in the slow test.
"""

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array, to_array

from artifacts.onnx_file import load_onnx, save_onnx
from framefit import fit_workshop
from framefit.budget_job import make_report
from framefit.cli import main
from framefit.fit_workshop import FitSettings, FitWorkshop
from framefit.network_clock import NetworkClock
from latency_budget.verdict import Verdict


def make_network(side):
    """Returns eight layers of 48 channels, which integers make much faster."""
    rng = np.random.default_rng(0)
    channels = [3, *[48] * 8]
    nodes, weights, tensor = [], [], "image"
    for place, (read, made) in enumerate(itertools.pairwise(channels)):
        weight = rng.normal(size=(made, read, 3, 3)) / np.sqrt(9 * read)
        weights.append(from_array(weight.astype(np.float32), f"w{place}"))
        names = [tensor, f"w{place}"]
        nodes.append(helper.make_node("Conv", names, [f"c{place}"], f"conv{place}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{place}"], [f"r{place}"], f"relu{place}"))
        tensor = f"r{place}"
    nodes.append(helper.make_node("GlobalAveragePool", [tensor], ["y"], "pool"))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, side, side))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 48, 1, 1))],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def network():
    return make_network(24)


@pytest.fixture
def steady_clock(monkeypatch):
    """Latencies in ms that no other process disturbs: a network's weights in MB."""

    def time_networks(_, models):
        weights = [[to_array(item) for item in model.graph.initializer] for model in models]
        return [sum(array.nbytes for array in arrays) / 1e6 for arrays in weights]

    monkeypatch.setattr(NetworkClock, "__call__", time_networks)


@pytest.fixture
def reports(monkeypatch):
    """The reports that are made: of what was measured, all that is judged passes."""
    made = []

    def pass_all(*given, **options):
        report = make_report(*given, **options)
        gates = tuple(replace(gate, verdict=Verdict.PASS) for gate in report.gates)
        made.append(replace(report, gates=gates, verdict=Verdict.PASS))
        return made[-1]

    monkeypatch.setattr(fit_workshop, "make_report", pass_all)
    return made


def fit(folder, network, limit_ms, *options, side=24, rate_hz=150):
    """Returns the exit code and what `fit.json` holds."""
    model, budget, data = (folder / name for name in ("net.onnx", "budget.toml", "data.npz"))
    save_onnx(network, model, metadata={})
    budget.write_text(f"[frame]\nrate_hz = {rate_hz}\n[stages]\nnetwork = {limit_ms}\n")
    pictures = np.random.default_rng(1).random((4, 3, side, side), np.float32)
    np.savez(data, image=pictures)
    code = main(
        [
            *("fit", str(model), "--budget", str(budget), "--data", str(data)),
            *("--out", str(folder / "out"), "--environment", "report"),
            *options,
        ]
    )
    return code, json.loads((folder / "out" / "fit.json").read_text())


def test_a_network_that_keeps_the_budget_stays_in_float(
    network, steady_clock, reports, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    code, found = fit(tmp_path, network, 5, "--frames", "40")
    assert code == 0
    (only,) = found["tried"]
    assert only["name"] == "float"
    assert only["keeps"]
    assert only["network_ms"]["n"] >= 10
    assert only["outputs"]["y"]["max_abs"] == 0
    assert found["chosen"].endswith("net.onnx")
    assert (tmp_path / "out" / "report.html").is_file()
    assert "exact" in capsys.readouterr().out


def test_a_budget_that_nothing_keeps_fails_and_says_what_would_help(
    network, steady_clock, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    code, found = fit(tmp_path, network, limit_ms=0.05)
    assert code == 1
    assert found["chosen"] is None
    assert "can be trained" in capsys.readouterr().out


def test_integers_are_taken_where_float_takes_longer_than_is_allowed(
    network, steady_clock, reports, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    limit_ms = round(0.8 * NetworkClock("openvino")([network])[0], 3)
    code, found = fit(tmp_path, network, limit_ms, "--frames", "40")
    assert code == 0
    (only,) = found["tried"]
    assert only["name"] == "INT8"
    assert only["back_to_back_ms"] < limit_ms
    assert only["outputs"]["y"]["sqnr_db"] > 20


@pytest.mark.slow
@pytest.mark.timing
def test_integers_are_taken_where_float_is_measured_to_be_too_slow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network = make_network(96)
    float_ms = NetworkClock("openvino")([network])[0]
    limit_ms = round(0.8 * float_ms, 3)
    _, found = fit(tmp_path, network, limit_ms, "--frames", "320", side=96, rate_hz=30)
    assert found["tried"][-1]["name"] == "INT8"
    assert found["tried"][-1]["outputs"]["y"]["sqnr_db"] > 20


def test_a_budget_that_is_none_is_one_line(network, tmp_path, capsys):
    model = save_onnx(network, tmp_path / "net.onnx", metadata={})
    code = main(["fit", str(model), "--budget", "none.toml", "--data", str(tmp_path)])
    assert code == 2
    assert "cannot read the budget none.toml" in capsys.readouterr().err


def test_a_dynamic_input_gets_the_shape_that_is_given(network, steady_clock, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dims = network.graph.input[0].type.tensor_type.shape.dim
    for dim in (dims[2], dims[3]):
        dim.dim_param = "side"
    _, found = fit(tmp_path, network, 0.05, "--input-shape", "1,3,24,24")
    assert found["chosen"] is None
    shape = load_onnx(tmp_path / "out" / "net.onnx").graph.input[0].type.tensor_type.shape
    assert [dim.dim_value for dim in shape.dim] == [1, 3, 24, 24]


def test_a_model_that_is_none_is_one_line(tmp_path, capsys):
    (tmp_path / "budget.toml").write_text("[frame]\nrate_hz = 30\n")
    budget = str(tmp_path / "budget.toml")
    code = main(["fit", "none.onnx", "--budget", budget, "--data", str(tmp_path)])
    assert code == 2
    assert "none.onnx" in capsys.readouterr().err


def test_a_wrong_tier_is_refused_before_anything_is_made(network, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = save_onnx(network, tmp_path / "net.onnx", metadata={})
    (tmp_path / "budget.toml").write_text("[frame]\nrate_hz = 30\n")
    monkeypatch.setattr("framefit.fit_job.climb", lambda *given: pytest.fail("it was climbed"))
    options = ["--budget", "budget.toml", "--data", "none.npz", "--tier", "soon"]
    assert main(["fit", str(model), *options]) == 2
    assert "soon" in capsys.readouterr().err


def test_a_disturbed_measurement_is_repeated(network, steady_clock, reports, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verdicts = []

    def disturb_first(*given, **options):
        """Too disturbed at first, and then what was measured the first time."""
        report = reports[0] if reports else measure(*given, **options)
        verdicts.append(Verdict.PASS if verdicts else Verdict.INVALID)
        return replace(report, verdict=verdicts[-1])

    measure = fit_workshop.make_report
    monkeypatch.setattr(fit_workshop, "make_report", disturb_first)
    _, found = fit(tmp_path, network, 5, "--frames", "40")
    assert verdicts == [Verdict.INVALID, Verdict.PASS]
    assert found["chosen"] == str(tmp_path / "net.onnx")
    assert len(found["tried"]) == 1


@pytest.fixture
def narrowings(monkeypatch):
    """The networks that are pruned; a distillation is interrupted unless it has a state."""
    pruned = []

    def prune(model, goal, settings, *, out, **_):
        pruned.append(out)
        out.write_bytes(b"narrow")
        return SimpleNamespace(out=out)

    def distill(student, *_, out, **__):
        assert student.exists()
        if not out.with_suffix(".state").exists():
            out.with_suffix(".state").write_bytes(b"half way")
            raise KeyboardInterrupt
        return SimpleNamespace(out=out)

    monkeypatch.setattr("framefit.prune_job.prune_file", prune)
    monkeypatch.setattr("framefit.distill_job.distill_file", distill)
    return pruned


def test_an_interrupted_distillation_goes_on_with_its_own_network(narrowings, tmp_path):
    model, told = tmp_path / "net.onnx", []
    model.write_bytes(b"weights")
    settings = FitSettings(model=model, budget=tmp_path / "b.toml", data="d", out=tmp_path)
    workshop = FitWorkshop(settings, None, None, told.append)
    with pytest.raises(KeyboardInterrupt):
        workshop.narrow(2.0)
    assert (workshop.narrow(2.0), len(narrowings)) == (tmp_path / "net.2.00ms.distilled.pt", 1)
    assert "from where it was stopped" in told[-1]
    model.write_bytes(b"other weights")
    with pytest.raises(KeyboardInterrupt):
        workshop.narrow(2.0)
    assert len(narrowings) == 2
