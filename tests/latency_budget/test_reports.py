import io
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from artifacts.errors import InputError
from latency_budget.baseline import read_baseline
from latency_budget.budget import Budget, HeadContract
from latency_budget.clock import ManualClock
from latency_budget.environment import Check, Environment
from latency_budget.measure import MeasureSettings, measure_paced
from latency_budget.report import build_report, build_variant, summarise_ms
from latency_budget.reports import REPORTS, html, json_report, junit, markdown, write_report
from latency_budget.reports.charts import build_axis, latency_axis
from latency_budget.reports.read_report import read_report
from latency_budget.reports.table import build_rows
from latency_budget.reports.terminal import describe_gain, headline, print_report
from latency_budget.reports.text import plain
from latency_budget.run import Run
from latency_budget.stage import Stage
from latency_budget.verdict import HeadQuality, judge

MS = 1_000_000
NASTY = ["</script><b>x", "a%0A::error::x", "a\n::error::x", "]]></testsuite>", "<img src=x>|`[b]"]
MACHINE = Environment(
    (Check("steal", "ok", "0 %"), Check("PSI", "unknown", "no"), Check("governor", "warn", "slow")),
    {"processor": "Test CPU"},
)


def make_run(centre, n=1000, spikes=(), dropped=None, stages=True):
    rng = np.random.default_rng(4)
    network = (rng.normal(centre, 0.2, n) * MS).astype(np.int64)
    network[list(spikes)] += 30 * MS
    parts = {"preprocess": np.full(n, 2 * MS), "network": network}
    return Run.from_latencies(
        network + 2 * MS + 9_000, stages_ns=parts if stages else None, dropped=dropped
    )


def make_report(tmp_path, names=("fp32", "int8"), **values):
    budget = Budget(
        stages={"preprocess": 3.0, "network": 22.0},
        heads={"detection": HeadContract(metric="mAP50", max_drop=0.01)},
    )
    variants = []
    for index, name in enumerate(names):
        run = make_run([40.0, 18.0][index % 2], **values)
        quality = {"detection": HeadQuality("mAP50", 0.6, 0.6 - 0.004 * index)}
        judgement = judge(run, budget, environment=MACHINE, heads=quality)
        artifact = tmp_path / f"model{index}.onnx"
        artifact.write_bytes(b"w" * (4_000_000 >> (2 * index)))
        variants.append(
            build_variant(
                name,
                run,
                budget,
                judgement=judgement,
                artifact=artifact,
                runtime="openvino",
                heads={
                    "detection": {"metric": "mAP50", "value": quality["detection"].candidate},
                    "depth": {"metric": "abs_rel", "value": 0.1 + 0.002 * index},
                },
            )
        )
    return build_report(variants, budget, judgement, environment=MACHINE, title="Test")


def test_report_json_has_the_schema_and_the_raw_samples(tmp_path):
    report = make_report(tmp_path)
    content = json.loads(write_report(report, tmp_path / "out")["json"].read_text())
    assert (content["schema"], content["verdict"]) == (1, "pass")
    variant = content["variants"][1]
    assert set(variant) >= {
        "name", "artifact", "sha256", "size_bytes", "runtime",
        "network_ms", "frame_ms", "stages", "heads",
    }  # fmt: skip
    assert set(variant["network_ms"]) == {"p50", "p95", "p99", "p999", "max", "n"}
    assert set(variant["frame_ms"]) == {"p50", "p95", "p99", "p999", "max", "n", "misses"}
    assert set(variant["stages"][0]) == {"name", "p50", "p99", "budget_ms"}
    assert variant["heads"]["detection"] == {
        "metric": "mAP50", "value": 0.596, "lower_is_better": False,
    }  # fmt: skip
    assert "lower_is_better" not in variant["heads"]["depth"]
    assert all(set(gate) == {"name", "verdict", "detail"} for gate in content["gates"])
    assert len(content["samples"][1]["frame_ns"]) == 1000
    ordered = sorted(content["samples"][1]["frame_ns"])
    assert ordered[989] / 1e6 == pytest.approx(variant["frame_ms"]["p99"])
    assert len(variant["sha256"]) == 64


@pytest.mark.parametrize("lower_is_better", [True, False])
def test_the_table_says_which_way_a_metric_counts_as_its_contract_does(lower_is_better):
    """The name alone says the opposite of one of the two, and nothing of the other metric."""
    names = ("score_error", "badness")
    contracts = {
        name: HeadContract(metric=name, max_drop=0.1, lower_is_better=lower_is_better)
        for name in names
    }
    budget, run = Budget(heads=contracts), make_run(18.0)
    heads = {name: {"metric": name, "value": 0.5} for name in names}
    variant = build_variant("int8", run, budget, heads=heads)
    rows = build_rows(build_report([variant], budget, judge(run, budget)))
    directions = ["lower is better" in row[0] for row in rows if row[0].startswith(names)]
    assert directions == [lower_is_better] * 2


def test_every_format_is_written_and_the_folder_is_made(tmp_path):
    paths = write_report(make_report(tmp_path), tmp_path / "a" / "b")
    assert set(paths) == set(REPORTS)
    assert {path.name for path in paths.values()} == {
        "report.json", "report.md", "report.html", "report.xml",
    }  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == sorted(
        path.name for path in paths.values()
    )


def test_an_unwritable_folder_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot write"):
        write_report(make_report(tmp_path), tmp_path / "file" / "out")


def test_baseline_comes_back_as_it_was_written(tmp_path):
    dropped = np.zeros(1000, bool)
    dropped[5] = True
    report = make_report(tmp_path, dropped=dropped)
    path = json_report.write(report, tmp_path)
    assert (read_baseline(path).latency_ns == report.variants[-1].run.latency_ns).all()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', '{"schema": 1, "samples": [3]}'])
def test_a_baseline_of_another_kind_is_refused(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"report\.json"):
        read_baseline(path)


def test_speed_never_stands_without_quality(tmp_path):
    report = make_report(tmp_path)
    console = Console(record=True, width=140, file=io.StringIO())
    print_report(report, console)
    for text in (console.export_text(), markdown.render(report).replace("\\", "")):
        assert "2.22x faster" in text
        assert "0.5960 (−0.0040)" in text
        assert "0.1020 (+0.0020)" in text
    assert "mAP50 −0.0040" in describe_gain(report)
    assert headline(report).startswith("PASS: int8 keeps its frame budget of 33 ms; P99 at most")


@pytest.mark.parametrize(
    ("mode", "words"),
    [("enforce", "Machine: invalid<"), ("report", "Machine: invalid, reported only<")],
)
def test_a_pass_on_a_disturbed_machine_says_that_it_was_only_reported(tmp_path, mode, words):
    disturbed = Environment((Check("steal", "invalid", "9 %"),), {})
    budget = Budget(environment=mode)
    run = make_run(18.0, stages=False)
    judgement = judge(run, budget, environment=disturbed)
    variant = build_variant("int8", run, budget, judgement=judgement)
    report = build_report([variant], budget, judgement, environment=disturbed)
    assert words in markdown.render(report)
    assert ("invalid, reported only" in html.render(report)) == (mode == "report")
    stored = read_report(json_report.write(report, tmp_path))
    assert stored.gates == report.gates
    assert words in markdown.render(stored)


@pytest.mark.parametrize(
    ("centre", "checked", "is_said"),
    [(40.0, "invalid", True), (40.0, "warn", False), (18.0, "invalid", False)],
)
def test_a_fail_says_that_an_unfit_machine_may_be_its_cause(centre, checked, is_said):
    machine = Environment((Check("steal", checked, "9 %"),), {})
    budget = Budget(environment="report")
    run = make_run(centre, stages=False)
    judgement = judge(run, budget, environment=machine)
    variant = build_variant("int8", run, budget, judgement=judgement)
    line = headline(build_report([variant], budget, judgement, environment=machine))
    assert line.startswith("FAIL" if centre > 33 else "PASS")
    assert line.endswith("; the machine was unfit and may be the cause (environment)") == is_said


def test_a_lone_variant_needs_no_comparison(tmp_path):
    report = make_report(tmp_path, names=("fp32",))
    assert describe_gain(report) == ""
    assert "FAIL: fp32 breaks" in headline(report)
    assert "Against" not in markdown.render(report)


class Collector(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("name", NASTY)
def test_names_cannot_break_out_of_any_report(tmp_path, name):
    usual, nasty = make_report(tmp_path), make_report(tmp_path, names=("fp32", name))
    first, second = Collector(), Collector()
    first.feed(html.render(usual))
    second.feed(html.render(nasty))
    assert first.tags == second.tags
    assert plain(name) in " ".join(second.text)
    suite = ElementTree.fromstring(junit.render(nasty))
    assert suite.attrib["tests"] == str(len(nasty.gates)) == str(len(suite))
    usual_lines, nasty_lines = (markdown.render(r).split("\n") for r in (usual, nasty))
    assert len(usual_lines) == len(nasty_lines)
    assert not any(line.startswith("::") for line in nasty_lines)
    table = [line for line in nasty_lines if line.startswith("|")]
    assert re.sub(r"\\.", "", table[0]).count("|") == 4
    console = Console(record=True, width=100, file=io.StringIO())
    print_report(nasty, console)
    assert not any(line.startswith("::") for line in console.export_text().split("\n"))


@settings(max_examples=12, deadline=None)
@given(name=st.text(max_size=30))
def test_any_name_gives_well_formed_reports(tmp_path_factory, name):
    report = make_report(tmp_path_factory.mktemp("r"), names=(name,), n=30)
    ElementTree.fromstring(junit.render(report))
    assert json.loads(json_report.render(report))["variants"][0]["name"] == name
    assert html.render(report).count("</script>") == 1


def test_the_page_needs_nothing_from_outside(tmp_path):
    page = html.render(make_report(tmp_path))
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)\s*=\s*[\"'](?!#)", page)
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


@pytest.mark.parametrize(
    "values",
    [
        {"n": 1},
        {"n": 60},
        {"dropped": np.ones(1000, bool)},
        {"spikes": range(1000)},
        {"stages": False},
        {"spikes": (3, 500)},
    ],
)
def test_strange_runs_still_give_every_report(tmp_path, values):
    report = make_report(tmp_path, **values)
    for path in write_report(report, tmp_path / "out").values():
        assert path.stat().st_size > 0
    assert "nan" not in (tmp_path / "out" / "report.html").read_text().lower().replace("nance", "")


def test_an_overloaded_pipeline_says_why_its_latency_grows(tmp_path):
    clock = ManualClock()
    stages = [Stage("network", lambda x: clock.advance_ns(45 * MS))]
    for policy, reason in (("fifo", "queue grows"), ("latest", "must be dropped")):
        run = measure_paced(
            stages, [0], MeasureSettings(frames=400, clock=clock, policy=policy, warmup_frames=0)
        )
        judgement = judge(run, Budget())
        variant = build_variant("fp32", run, Budget(), judgement=judgement)
        page = html.render(build_report([variant], Budget(), judgement))
        assert "Needs 45.0 ms per frame where one comes every 33.3 ms, so" in page
        assert reason in page
        assert "with its wait" in page


def test_summaries_say_none_rather_than_guess():
    assert summarise_ms(np.arange(50, dtype=np.int64))["p99"] is None
    empty = summarise_ms(np.empty(0, np.int64))
    assert (empty["p50"], empty["max"], empty["n"]) == (None, None, 0)


def test_axes_show_the_deadline_and_round_ticks(tmp_path):
    axis = latency_axis(make_report(tmp_path), from_zero=False)
    assert axis.low < 33 < axis.high
    assert all(0 <= at <= 100 for _, at in axis.ticks)
    assert [text for text, _ in build_axis(0, 50).ticks] == ["0", "10", "20", "30", "40", "50"]


PROBE = """<script>
window.onerror = message => { window.failed = message; };
addEventListener('load', () => {
  document.querySelector('button[data-toggle]').click();
  document.querySelector('input[data-variant]').click();
  const root = document.documentElement;
  parent.postMessage({
    width: root.clientWidth,
    overflow: root.scrollWidth - root.clientWidth,
    classes: root.className,
    hidden: document.querySelectorAll('[data-part][hidden]').length,
    failed: window.failed || '',
  }, '*');
});</script>"""


@pytest.mark.parametrize("width", [360, 1280, 2560])
def test_the_page_renders_without_overflow_or_script_error(tmp_path, render_in_chromium, width):
    page = html.render(make_report(tmp_path, names=("fp32", NASTY[0])))
    found = render_in_chromium(page, width, PROBE)
    assert found == {
        "width": width,
        "overflow": 0,
        "classes": "scripted log",
        "hidden": 4,
        "failed": "",
    }
