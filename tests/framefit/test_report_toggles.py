"""The toggles of `budget-check report`: of several variants, and of a pipeline of one's own."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from framefit.cli import budget_check_main
from latency_budget import Budget, Run, Stage, judge
from latency_budget.report import build_report, build_variant
from latency_budget.reports import json_report

MS = 1_000_000
DOCS = Path(__file__).parents[2] / "docs" / "why.md"


def write_report(folder, networks_ms):
    budget = Budget(stages={"network": 22.0})
    variants = []
    for name, network_ms in networks_ms.items():
        parts = {
            "preprocess": np.full(400, MS),
            "network": np.full(400, network_ms * MS) + np.arange(400) * 100,
        }
        run = Run.from_latencies(sum(parts.values()), stages_ns=parts)
        judgement = judge(run, budget)
        variants.append(build_variant(name, run, budget, judgement=judgement))
    return json_report.write(build_report(variants, budget, judgement, title="Mine"), folder)


def read_mix(page):
    found = re.search(r'id="mix-data">(.*?)</script>', page.read_text())
    return json.loads(found[1]) if found else None


@pytest.mark.parametrize("shipped_ms", [18, 40])
def test_a_report_of_several_variants_has_toggles_whatever_its_verdict(tmp_path, shipped_ms):
    report = write_report(tmp_path, {"float": 45, "INT8": shipped_ms})
    verdict = json.loads(report.read_text())["verdict"]
    assert verdict == ("pass" if shipped_ms < 33 else "fail")
    assert budget_check_main(["report", str(report), "--out", str(tmp_path)]) == 0
    mix = read_mix(tmp_path / "report.html")
    assert [(choice["legend"], choice["values"]) for choice in mix["choices"]] == [
        ("preprocess", ["float", "INT8"]),
        ("network", ["float", "INT8"]),
    ]


def test_a_report_of_one_variant_has_none(tmp_path):
    report = write_report(tmp_path, {"INT8": 18})
    assert budget_check_main(["report", str(report), "--out", str(tmp_path)]) == 0
    assert read_mix(tmp_path / "report.html") is None


@pytest.mark.parametrize(("latency_ms", "code"), [(20, 0), (40, 1)])
def test_samples_of_such_a_report_are_judged_as_before(tmp_path, latency_ms, code):
    report = write_report(tmp_path, {"float": 45, "INT8": latency_ms})
    (tmp_path / "budget.toml").write_text("[frame]\nrate_hz = 30\ndeadline_ms = 33.0\n")
    arguments = ["--budget", str(tmp_path / "budget.toml"), "--samples", str(report)]
    assert budget_check_main([*arguments, "--out", str(tmp_path / "out")]) == code


def test_the_example_of_the_documentation_makes_toggles(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.S)[1]
    module = ModuleType("my.frame")
    stages = [Stage("preprocess", lambda item: item), Stage("network", lambda item: item)]
    module.build = lambda precision: (stages, [0])
    monkeypatch.setitem(sys.modules, "my", ModuleType("my"))
    monkeypatch.setitem(sys.modules, "my.frame", module)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "why.md", "exec"), {})
    report = write_report(tmp_path, {"INT8": 18})
    options = ["--out", str(tmp_path), "--options", "options.json"]
    assert budget_check_main(["report", str(report), *options]) == 0
    mix = read_mix(tmp_path / "report.html")
    assert [(choice["legend"], choice["values"]) for choice in mix["choices"]] == [
        ("precision", ["float", "INT8"])
    ]
    assert sum("back to back" in whole["text"] for whole in mix["wholes"]) == 2
