"""Random graphs: runtimes compute what their quantized files say."""

import pytest

from benchmarks.random_graphs.check import RUNTIMES, check_graph, draw_chain, settings_for
from benchmarks.random_graphs.operators import LAYERS, OPERATORS
from compress.quantize.placement import openvino_forms
from compress.quantize.settings import QuantizeSettings


@pytest.fixture
def settings(exact_weights):
    """Without the corrections that would hide what a runtime does."""
    return QuantizeSettings(weights=exact_weights, bias_correction=False, equalization=False)


def test_all_that_can_be_drawn_is_drawn():
    names = {name for seed in range(400) for name in draw_chain(seed).names}
    assert names == LAYERS.keys() | OPERATORS.keys()


def test_a_seed_draws_one_graph():
    one, other = draw_chain(5).to_model(), draw_chain(5).to_model()
    assert one.SerializeToString() == other.SerializeToString()


@pytest.mark.parametrize("target", RUNTIMES)
@pytest.mark.parametrize("first", [0, 10])
def test_runtimes_compute_what_the_file_says(first, target, settings):
    given = settings_for(settings, target)
    outcomes = [check_graph(seed, given) for seed in range(first, first + 10)]
    assert [item for item in outcomes if item.is_wrong] == []
    assert "right" in {item.verdict for item in outcomes}


@pytest.mark.slow
@pytest.mark.parametrize("target", RUNTIMES)
def test_many_graphs_come_out_right(target, settings):
    given = settings_for(settings, target)
    outcomes = [check_graph(seed, given) for seed in range(20, 320)]
    assert [item for item in outcomes if item.is_wrong] == []


@pytest.mark.parametrize(
    ("seed", "form"),
    [(36, "guard_last_channels"), (28, "write_flat_gathers"), (559, "write_flat_gathers")],
)
def test_what_a_runtime_gets_wrong_is_found(seed, form, settings, monkeypatch):
    """The negative control: without a form that keeps OpenVINO right, a graph is wrong."""
    monkeypatch.setattr(openvino_forms, form, lambda graph: [])
    assert check_graph(seed, settings_for(settings, "openvino")).is_wrong
