import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from compress.diagnose import diagnose_model
from compress.diagnose.html import render_html
from compress.diagnose.report import Diagnosis, LayerDiagnosis, WeightFinding

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NASTY = "<script>alert(1)</script>"
PROBE = """<script>addEventListener('load', () => {
  const root = document.documentElement;
  parent.postMessage({width: root.clientWidth, overflow: root.scrollWidth - root.clientWidth}, '*');
});</script>"""
FRAME = """<!doctype html><script>
addEventListener('message', event => { document.title = JSON.stringify(event.data); });
</script><iframe src="inner.html" style="width:{width}px;height:900px;border:0"></iframe>"""


def nasty_diagnosis(heads: int = 6) -> Diagnosis:
    """Long names, many heads, markup in every text."""
    names = [f"{NASTY}-a-rather-long-name-of-head-{index}" for index in range(heads)]
    layers = tuple(
        LayerDiagnosis(
            node=f"/backbone/layer{index}/block/conv_of_a_rather_long_name/{NASTY}",
            op_type="Conv",
            owner=names[0],
            sqnr_db=30.0,
            share=1 / 8,
            noise=dict.fromkeys(names, 10.0**-index),
            channel_db=tuple(float(value) for value in range(300)),
            activations=(),
            weight=WeightFinding(
                sqnr_db=40.0,
                histogram=(1, 5, 1),
                lowest=-127,
                highest=127,
                dead_channels=(1, 2),
                range_ratio=2.0,
            ),
        )
        for index in range(8)
    )
    values = dict.fromkeys(names, 30.0)
    return Diagnosis(
        heads={name: (name,) for name in names},
        heads_db=values,
        weights_only_db=values,
        layers=layers,
        remedies=(),
        calibration_samples=4,
        judged_samples=2,
        is_held_out=True,
    )


def test_the_page_names_every_layer_head_and_remedy(model, samples) -> None:
    diagnosis = diagnose_model(model, samples)
    page = render_html(diagnosis, "net.onnx")
    for word in ("stem", "spoiled", "first", "last", "net.onnx", *diagnosis.heads):
        assert word in page
    for item in diagnosis.remedies:
        assert all(word in page for word in item.options)
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_texts_are_escaped() -> None:
    page = render_html(nasty_diagnosis(), NASTY)
    assert NASTY not in page
    assert "&lt;script&gt;" in page


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: page not rendered")
@pytest.mark.parametrize("width", [360, 2560])
def test_the_page_renders_without_overflow(tmp_path, width) -> None:
    page = render_html(nasty_diagnosis(), "net.onnx").replace(
        "style-src 'unsafe-inline'", "style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    )
    (tmp_path / "inner.html").write_text(page.replace("<head>", f"<head>{PROBE}", 1))
    (tmp_path / "outer.html").write_text(FRAME.replace("{width}", str(width)))
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
        (tmp_path / "outer.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(unescape(re.search(r"<title>(.*)</title>", done.stdout)[1]))
    assert found == {"width": width, "overflow": 0}
