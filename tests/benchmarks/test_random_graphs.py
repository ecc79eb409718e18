"""Random graphs: runtimes compute what their quantized files say."""

import pytest

from benchmarks.random_graphs.blocks import BLOCKS
from benchmarks.random_graphs.builds import check_build
from benchmarks.random_graphs.check import (
    GRAPHS,
    RUNTIMES,
    check_graph,
    draw_blocks,
    draw_chain,
    settings_for,
)
from benchmarks.random_graphs.operators import LAYERS, OPERATORS
from benchmarks.random_graphs.options import SETTINGS, any_settings
from benchmarks.rtx_kernels import has_rtx
from benchmarks.zoo.onnx_cases import Builder
from compress.quantize.placement import openvino_forms
from compress.quantize.settings import QuantizeSettings


@pytest.fixture
def settings(exact_weights):
    """Without the corrections that would hide what a runtime does."""
    return QuantizeSettings(weights=exact_weights, bias_correction=False, equalization=False)


def test_all_that_can_be_drawn_is_drawn():
    names = {name for seed in range(400) for name in draw_chain(seed).names}
    assert names == LAYERS.keys() | OPERATORS.keys()


def test_all_blocks_are_drawn():
    assert BLOCKS.keys() <= {name for seed in range(300) for name in draw_blocks(seed).names}


@pytest.mark.parametrize("draw", GRAPHS.values())
def test_a_seed_draws_one_graph(draw):
    one, other = draw(5).to_model(), draw(5).to_model()
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


@pytest.mark.slow
@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.parametrize("target", RUNTIMES)
def test_blocks_come_out_right_however_they_are_quantized(target, how, exact_weights):
    outcomes = [
        check_graph(seed, settings, "blocks")
        for seed in range(100)
        for settings in SETTINGS[how](seed, target, exact_weights)
    ]
    assert [item for item in outcomes if item.is_wrong] == []


@pytest.mark.skipif(not has_rtx(), reason="TensorRT-RTX is not installed")
def test_what_lint_calls_buildable_is_built(settings):
    given = settings_for(settings, "tensorrt")
    with Builder() as builder:
        found = {check_build(seed, given, "blocks", builder) for seed in range(6)}
    assert found == {"built"}


def test_a_product_of_odd_weights_is_found(exact_weights, monkeypatch):
    """The negative control of options drawn at random."""
    (settings,) = any_settings(24, "openvino", exact_weights)
    assert not check_graph(24, settings, "blocks").is_wrong
    monkeypatch.setattr(
        openvino_forms, "guard_turned_products", lambda graph, *, has_integer_inputs: []
    )
    assert check_graph(24, settings, "blocks").is_wrong


@pytest.mark.parametrize(
    ("seed", "form"),
    [(36, "guard_last_channels"), (28, "write_flat_gathers"), (559, "write_flat_gathers")],
)
def test_what_a_runtime_gets_wrong_is_found(seed, form, settings, monkeypatch):
    """The negative control: without a form that keeps OpenVINO right, a graph is wrong."""
    monkeypatch.setattr(openvino_forms, form, lambda graph: [])
    assert check_graph(seed, settings_for(settings, "openvino")).is_wrong
