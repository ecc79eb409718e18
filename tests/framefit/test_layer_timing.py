"""The measured table of layers that a search for a latency rests on."""

from contextlib import suppress

import pytest

torch = pytest.importorskip("torch")

from compress.prune.analysis.api import find_channels  # noqa: E402
from framefit.layer_timing import LayerTimes  # noqa: E402

LAYERS = 3


def build(folder, monkeypatch, killed_after=LAYERS):
    """Builds the table of three layers on a clock that ends the run after some; returns it."""
    widths = (3, 8, 16, 24)
    module = torch.nn.Sequential(
        *(torch.nn.Conv2d(widths[i], widths[i + 1], 1) for i in range(LAYERS))
    )
    trace = find_channels(module, (torch.randn(1, 3, 8, 8),)).trace
    times = LayerTimes("onnxruntime", folder)
    measured = []

    def measure(layer, is_whole):
        if len(measured) == killed_after:
            raise KeyboardInterrupt
        measured.append(layer.module)
        return {"8,8": 1.0}

    monkeypatch.setattr(times, "_measure", measure)
    with suppress(KeyboardInterrupt):
        times.build(trace.layers)
    return times, measured


def test_what_a_killed_run_measured_is_not_measured_again(tmp_path, monkeypatch):
    _, measured = build(tmp_path, monkeypatch, killed_after=2)
    assert len(measured) == 2
    times, rest = build(tmp_path, monkeypatch)
    assert len(rest) == LAYERS - 2
    assert len(times.times) == LAYERS
    assert len(list(tmp_path.glob("layers-*.json"))) == 1
