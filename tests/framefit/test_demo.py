"""The whole demo with few frames: minutes, so it is marked slow."""

import json
import re

import pytest

from framefit.demo import HISTORY, OPTIONS, DemoSettings, run_demo
from latency_budget.report_extras import StageOption

SMALL = DemoSettings(
    calibration_pictures=2,
    held_out_scenes=2,
    frames=60,
    restarts=1,
    drive_frames=10,
    shape_frames=20,
)


@pytest.mark.slow
def test_the_demos_page_has_toggles_roofline_causes_and_history(tmp_path):
    (tmp_path / HISTORY).write_text(
        '{"label": "before", "p50_ms": 20.0, "p99_ms": 30.0, "verdict": "pass", "created_s": 1}\n'
    )
    result = run_demo(tmp_path, SMALL, lambda what, done, total: None)
    extras = result.report.extras
    assert {option.settings["precision"] for option in extras.options} == {"float", "INT8"}
    saved = [StageOption.from_dict(item) for item in json.loads((tmp_path / OPTIONS).read_text())]
    assert tuple(saved) == extras.options
    assert set(extras.roofline.owners_ms) >= {"trunk", "detection", "segmentation", "depth"}
    assert extras.roofline.network == "road.int8.onnx"
    assert extras.history[0].label == "before"
    assert len(extras.history) == len((tmp_path / HISTORY).read_text().splitlines()) == 2
    page = (tmp_path / "report.html").read_text()
    mix = json.loads(re.search(r'id="mix-data">(.*?)</script>', page)[1])
    assert [choice["legend"] for choice in mix["choices"]] == [
        "precision", "backbone", "detection", "segmentation", "depth",
    ]  # fmt: skip
    assert all(path.exists() for path in result.files)
    for title in ("roofline-title", "history-title", "mix-title"):
        assert f'id="{title}"' in page
