import pytest

from compress.diagnose import diagnose_model
from compress.diagnose.html import render_html
from compress.diagnose.report import Diagnosis, LayerDiagnosis, WeightFinding

NASTY = "<script>alert(1)</script>"
PROBE = """<script>addEventListener('load', () => {
  const root = document.documentElement;
  parent.postMessage({width: root.clientWidth, overflow: root.scrollWidth - root.clientWidth}, '*');
});</script>"""


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


@pytest.mark.parametrize("width", [360, 2560])
def test_the_page_renders_without_overflow(render_in_chromium, width) -> None:
    page = render_html(nasty_diagnosis(), "net.onnx").replace(
        "style-src 'unsafe-inline'", "style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    )
    found = render_in_chromium(page, width, PROBE)
    assert found == {"width": width, "overflow": 0}
