"""Grids and qparams: what rounding may cost, and parity with onnxruntime."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from compress.quantize.qparams import (
    WEIGHT_GRIDS,
    IntegerGrid,
    WeightGrids,
    fake_quantize,
    qparams_for_range,
)

GRIDS = [
    IntegerGrid(bits=bits, is_signed=is_signed, is_narrow=is_signed and is_narrow)
    for bits in (4, 8, 16)
    for is_signed in (True, False)
    for is_narrow in (True, False)
]
finite = st.floats(-1e6, 1e6, width=32)


@given(finite, finite, st.sampled_from(GRIDS), st.booleans(), st.integers(0, 2**31))
def test_rounding_costs_at_most_half_a_step(a, b, grid, symmetric, seed):
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    qparams = qparams_for_range(low, high, grid, symmetric=symmetric)
    values = np.random.default_rng(seed).uniform(low, high, 50).astype(np.float32)
    inside = np.clip(values, qparams.low, qparams.high)
    error = np.abs(fake_quantize(values, qparams) - inside)
    assert error.max() <= qparams.scale * 0.5001 + 1e-6 * max(abs(low), abs(high))


@given(finite, finite, st.sampled_from(GRIDS), st.booleans())
def test_zero_is_exact_and_the_ends_are_covered(a, b, grid, symmetric):
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    qparams = qparams_for_range(low, high, grid, symmetric=symmetric)
    assert grid.lowest <= qparams.zero_point <= grid.highest
    assert fake_quantize(np.zeros(1), qparams)[0] == 0.0
    slack = qparams.scale * 0.51
    assert qparams.low <= low + slack
    assert qparams.high >= high - slack


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("grid", GRIDS)
def test_a_range_on_one_side_of_zero_reaches_to_zero(grid, symmetric):
    for near, far in ((2.0, 6.0), (0.25, 0.5)):
        above = qparams_for_range(near, far, grid, symmetric=symmetric)
        below = qparams_for_range(-far, -near, grid, symmetric=symmetric)
        assert above == qparams_for_range(0.0, far, grid, symmetric=symmetric)
        assert below == qparams_for_range(-far, 0.0, grid, symmetric=symmetric)


def test_layers_that_are_named_have_int8_instead():
    grids = WeightGrids(WEIGHT_GRIDS["int4"], frozenset({"first"}))
    assert grids.of("first") == WEIGHT_GRIDS["int8"]
    assert grids.of("second") == WEIGHT_GRIDS["int4"]


def test_signed_symmetric_has_zero_point_0():
    qparams = qparams_for_range(-1.0, 5.0, IntegerGrid(), symmetric=True)
    assert qparams.zero_point == 0
    assert qparams.scale == pytest.approx(5 / 127)


def test_unsigned_uses_the_whole_grid_for_values_that_are_never_negative():
    grid = IntegerGrid(is_signed=False)
    assert qparams_for_range(0.0, 255.0, grid, symmetric=True).scale == pytest.approx(1.0)


@pytest.mark.parametrize("grid", [IntegerGrid(), IntegerGrid(is_signed=False)])
def test_fake_quantize_is_what_onnxruntime_computes(
    grid: IntegerGrid, make_model: Callable, run_model: Callable
):
    qparams = qparams_for_range(-1.3, 2.9, grid, symmetric=False)
    values = np.random.default_rng(0).uniform(-4, 4, (2, 500)).astype(np.float32)
    values[0, :200] = (np.arange(200) - 100 + 0.5) * np.float32(qparams.scale)
    constants = {
        "scale": np.float32(qparams.scale).reshape(()),
        "zero": np.asarray(qparams.zero_point, grid.dtype),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    model = make_model(nodes, constants, {"x": (2, 500)}, ["y"])
    np.testing.assert_array_equal(
        run_model(model, {"x": values})["y"], fake_quantize(values, qparams)
    )
