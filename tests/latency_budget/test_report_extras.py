import dataclasses
import json

import numpy as np
import pytest

from artifacts.errors import InputError
from latency_budget.budget import Budget
from latency_budget.report import build_report, build_variant
from latency_budget.report_extras import (
    HistoryPoint,
    ReportExtras,
    RooflinePoint,
    RooflineView,
    StageOption,
)
from latency_budget.reports import html
from latency_budget.reports.charts import build_lanes
from latency_budget.reports.mix import build_mix, to_script
from latency_budget.reports.roofline_chart import build_roofline
from latency_budget.run import Run
from latency_budget.verdict import judge

MS = 1_000_000
NASTY = "</script><b>x"


def option(stage, base_ms, **settings):
    samples = ((base_ms + np.linspace(0, 1, 500)) * MS).astype(np.int64)
    return StageOption.from_samples(stage, settings, samples)


NETWORK = (
    option("network", 40, precision="float", depth="on"),
    option("network", 36, precision="float", depth="off"),
    option("network", 18, precision="INT8", depth="on"),
)
ROOFLINE = RooflineView(
    machine="a machine",
    peaks={"fp32": 1e11, "int8": 4e11},
    bandwidth=1e10,
    points=(
        RooflinePoint(
            name=NASTY,
            owner="trunk",
            precision="fp32",
            intensity=20.0,
            operations_per_s=5e10,
            ms=2.0,
        ),
        RooflinePoint(
            name="b", owner="depth", precision="int8", intensity=0.5, operations_per_s=1e9, ms=0.1
        ),
    ),
    wall="compute",
    advice=("quantize",),
    predictions=({"target": "orin", "low_ms": 0.1, "high_ms": None, "wall": "compute"},),
    owners_ms={"trunk": 2.0, "depth": 0.1},
)
HISTORY = tuple(
    HistoryPoint(label=f"c{index}", p50_ms=20.0 + index, p99_ms=30.0 + index, verdict="pass")
    for index in range(6)
)
EXTRAS = ReportExtras(options=NETWORK, roofline=ROOFLINE, history=HISTORY)


def make_report(extras=EXTRAS, names=("float", "INT8")):
    budget = Budget(stages={"preprocess": 3.0, "network": 22.0})
    variants = []
    for index, name in enumerate(names):
        network = np.full(400, (40, 18)[index % 2] * MS) + np.arange(400) * 1000
        network[[50, 51]] += 30 * MS
        parts = {"preprocess": np.full(400, (3, 2)[index % 2] * MS), "network": network}
        run = Run.from_latencies(sum(parts.values()), stages_ns=parts)
        judgement = judge(run, budget)
        variants.append(build_variant(name, run, budget, judgement=judgement))
    report = build_report(variants, budget, judgement, title="Extras")
    return dataclasses.replace(report, extras=extras)


def test_an_option_survives_its_json():
    for one in NETWORK:
        again = StageOption.from_dict(json.loads(json.dumps(one.to_dict())))
        assert again == one
    assert NETWORK[0].p50_ms == pytest.approx(40.5, abs=0.01)
    assert min(NETWORK[0].quantiles_ms) < NETWORK[0].p50_ms < max(NETWORK[0].quantiles_ms)


@pytest.mark.parametrize(
    "values", [{}, {**NETWORK[0].to_dict(), "quantiles_ms": [1]}, {"stage": 1, "settings": 3}]
)
def test_a_broken_option_is_refused(values):
    with pytest.raises(InputError):
        StageOption.from_dict(values)


def test_the_variants_themselves_are_options_where_no_others_are_given():
    mix = build_mix(make_report(ReportExtras()), ReportExtras())
    assert [stage["name"] for stage in mix["stages"]] == ["preprocess", "network"]
    assert mix["stages"][1]["controls"] == {"variant": ["float", "INT8"]}
    whole = next(one for one in mix["wholes"] if one["settings"] == {"variant": "INT8"})
    assert whole["p50"] == pytest.approx(20.2, abs=0.05)


def test_given_options_offer_one_control_per_setting():
    mix = build_mix(make_report(), EXTRAS)
    assert mix["stages"][1]["controls"] == {
        "precision": ["float", "INT8"],
        "depth": ["on", "off"],
    }


def shape(base_ms, **settings):
    """One shape of a frame of two stages, measured as a whole."""
    return (
        option("preprocess", 1, **settings),
        option("network", base_ms, **settings),
        option("frame", base_ms + 3, **settings),
    )


SHAPES = (
    *shape(40, precision="float", depth="on"),
    *shape(16, precision="INT8", depth="off"),
    *shape(18, precision="INT8", depth="on"),
)


def test_a_setting_of_several_stages_is_one_choice():
    mix = build_mix(make_report(), ReportExtras(options=SHAPES))
    assert [
        (choice["legend"], choice["values"], choice["shipped"]) for choice in mix["choices"]
    ] == [
        ("precision", ["float", "INT8"], "INT8"),
        ("depth", ["on", "off"], "on"),
    ]
    assert [stage["name"] for stage in mix["stages"]] == ["preprocess", "network"]


def test_a_whole_frame_names_the_variant_that_it_is():
    mix = build_mix(make_report(), ReportExtras(options=SHAPES))
    also = {tuple(whole["settings"].values()): whole["also"] for whole in mix["wholes"]}
    assert also["INT8", "on"].startswith("INT8 above, 400 frames")
    assert also["INT8", "off"] == ""


def test_one_variant_has_nothing_to_choose():
    report = make_report(ReportExtras(), names=("INT8",))
    assert build_mix(report, ReportExtras()) is None
    assert 'id="mix-form"' not in html.render(report)


def test_names_cannot_end_the_data_script():
    report = make_report(ReportExtras(), names=(NASTY, "INT8"))
    assert "</script><b>" not in to_script(build_mix(report, ReportExtras()))
    assert "</script><b>" not in html.render(report)


def test_points_lie_below_their_roof():
    chart = build_roofline(ROOFLINE)
    heights = {name: y for name, _, _, y in chart.roofs}
    compute_bound = next(dot for dot in chart.dots if dot.title.startswith(NASTY))
    assert compute_bound.y > heights["fp32"] > heights["int8"]
    assert len({(shape, colour) for _, shape, colour in chart.owners}) == len(chart.owners)


def test_slowest_layers_come_first_with_the_share_of_their_roof():
    chart = build_roofline(ROOFLINE)
    assert [point.ms for point, _ in chart.slowest] == [2.0, 0.1]
    assert chart.slowest[0][1] == pytest.approx(5e10 / 1e11 * 100)
    assert chart.slowest[1][1] == pytest.approx(1e9 / (0.5 * 1e10) * 100)
    assert sum(share for _, _, share, _ in chart.shares) == pytest.approx(100, abs=0.1)
    page = html.render(make_report())
    assert "The slowest layers" in page
    assert "95 %" in page


def test_a_layer_of_an_unknown_precision_has_no_share_of_a_roof():
    point = dataclasses.replace(ROOFLINE.points[0], precision="fp8")
    chart = build_roofline(dataclasses.replace(ROOFLINE, points=(point,)))
    assert chart.slowest == ((point, None),)


def test_predictions_are_called_predicted():
    assert "Predicted, not measured" in html.render(make_report())


def test_a_report_without_extras_shows_none():
    page = html.render(make_report(ReportExtras(), names=("INT8",)))
    for title in ("roofline-title", "history-title", "mix-title"):
        assert f'id="{title}"' not in page


def test_misses_are_listed_with_stage_and_cause():
    page = html.render(make_report())
    assert "Why 2 frames were missed" in page
    assert "too slow as usual" in page


def test_missed_frames_have_a_lane_per_cause():
    report = make_report(names=("float", "INT8"))
    slow, fast = (build_lanes(variant) for variant in report.variants)
    assert [(lane.kind, lane.count) for lane in slow] == [("too slow as usual", 400)]
    assert [(lane.kind, lane.count, len(lane.marks)) for lane in fast] == [("not recorded", 2, 2)]
    assert fast[0].marks[0][0] == pytest.approx(50 / 400 * 100, abs=0.2)
    assert fast[0].marks[0][1].startswith("frame 50, network: ")


PROBE = """<script>
window.onerror = message => { window.failed = message; };
addEventListener('load', () => {
  const answer = () => document.getElementById('mix-answer').textContent;
  const pick = (key, value) => {
    const box = [...document.querySelectorAll('#mix-form input')]
      .find(one => one.name.endsWith(key) && one.value === value);
    box.focus(); box.click();
    return [answer(), document.getElementById('mix-answer').className];
  };
  const root = document.documentElement;
  for (const part of document.querySelectorAll('details')) part.open = true;
  const begin = [answer(), document.getElementById('mix-answer').className];
  parent.postMessage({
    begin, float: pick('precision', 'float'), off: pick('depth', 'off'),
    unmeasured: pick('precision', 'INT8'), fits: pick('depth', 'on'),
    overflow: root.scrollWidth - root.clientWidth, failed: window.failed || '',
    legends: document.querySelectorAll('#mix-form fieldset legend').length,
  }, '*');
});</script>"""


@pytest.mark.parametrize("width", [360, 2560])
def test_toggles_compute_the_frame_again(render_in_chromium, width):
    found = render_in_chromium(html.render(make_report()), width, PROBE)
    assert found["failed"] == ""
    assert found["overflow"] == 0
    assert found["legends"] == 3
    assert found["fits"][1] == "answer fits"
    assert "frame P50 20.5 ms" in found["fits"][0]
    assert "no verdict" in found["fits"][0]
    assert found["float"][1] == "answer misses"
    assert "frame P50 42.5 ms" in found["float"][0]
    assert "frame P50 38.5 ms" in found["off"][0]
    assert found["unmeasured"][1] == "answer unknown"


def test_a_frame_of_one_variant_is_called_measured(render_in_chromium):
    page = html.render(make_report(ReportExtras()))
    probe = PROBE.replace("pick('precision', 'float')", "0").replace("pick('depth', 'off')", "0")
    probe = probe.replace("pick('precision', 'INT8')", "0").replace("pick('depth', 'on')", "0")
    found = render_in_chromium(page, 800, probe)
    assert "Measured as a whole (INT8)" in found["begin"][0]
