"""The zoo: a few networks here, all of them where the slow tests run."""

import importlib.util
import json

import pytest

from benchmarks.zoo import onnx_cases
from benchmarks.zoo.child import PARITY_MARGIN_DB, measure_network
from benchmarks.zoo.networks import ZOO, ZooNetwork
from benchmarks.zoo.page import render
from benchmarks.zoo.run import run_zoo

needs_rtx = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="tensorrt_rtx is not installed"
)
QUICK = ("lcnet_050", "tinynet_e")
FACTS = {
    "targets": ["tensorrt"],
    "samples": 4,
    "turns": 20,
    "parity_margin": PARITY_MARGIN_DB,
    "disturbed": "",
    "left": ["unseen"],
    "date": "2026-11-21",
    "machine": "2 cores",
    "versions": "framefit 0",
}


def test_the_zoo_has_many_families_and_names_them_once():
    names = [network.name for network in ZOO]
    assert len(names) == len(set(names)) >= 45
    assert set(QUICK) <= set(names)


@needs_rtx
@pytest.mark.parametrize("name", QUICK)
def test_a_quick_network_passes_every_stage(name):
    row = measure_network(ZooNetwork(name=name, size=64), ("tensorrt",))
    assert "problem" not in row
    assert row["stage"] == "done"
    assert row["lint"]["is_buildable"]
    assert row["plan_bytes"] > 10_000
    assert row["parity_db"]["tensorrt"] >= row["quality_db"]["tensorrt"] - PARITY_MARGIN_DB
    json.dumps(row)


def test_what_stops_a_network_is_named_with_its_stage():
    row = measure_network(ZooNetwork(name="no_such_network"), ("tensorrt",))
    assert row["problem"].startswith("network: ")
    page = render([row], FACTS)
    assert "0 of 1 pass" in page
    assert "Not run: unseen." in page
    assert f"* no_such_network: {row['problem']}" in page


def test_a_network_that_takes_too_long_or_crashes_does_not_stop_the_rest(monkeypatch):
    monkeypatch.setattr("benchmarks.zoo.run.PRELOADED", ())
    told = []
    rows = run_zoo([ZooNetwork(name="lcnet_050")], ("tensorrt",), timeout_s=0.01, tell=told.append)
    assert rows == told
    assert "not finished in 0 s" in rows[0]["problem"]


@pytest.mark.parametrize(
    ("ms", "said"), [(1.2, "slower than float on OpenVINO: slow"), (1.0, "No")]
)
def test_the_page_shows_what_is_slower(ms, said):
    row = {
        "name": "slow",
        "size": 96,
        "quality_db": {"openvino": 30.0},
        "parity_db": {"openvino": 40.0},
        "latency_ms": {"float": 1.0, "openvino": ms},
        "stays_float": {"openvino": 7},
        "lint": {"counts": {"warning": 1, "info": 2}},
        "plan_bytes": 5_000_000,
    }
    page = render([row], {**FACTS, "targets": ["openvino"]})
    assert "**1 of 1 pass every stage.**" in page
    assert any(said in line for line in page.splitlines() if "slower" in line)
    assert f"| slow | 96 | 30.0 | 40.0 | {ms:.2f} | 7 | 1 w, 2 i | 5.0 |" in page


@needs_rtx
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_whole_zoo_passes():
    rows = run_zoo(ZOO, ("tensorrt",), timeout_s=300.0)
    problems = {row["name"]: row["problem"] for row in rows if "problem" in row}
    assert "Col2Im" in problems.pop("volo_d1_224")
    assert problems == {}


@needs_rtx
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_lint_agrees_with_tensorrt_on_the_tests_of_onnx():
    figures = onnx_cases.compare_cases()
    assert figures["cases"] > 1500
    assert figures["missed"] <= 0.01 * figures["cases"]
    assert figures["refused_but_built"] <= 0.02 * figures["cases"]
