"""Sums of errors by channel, and what they say of an output whose mean is given back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from compress.errors import CalibrationError
from compress.quantize import channel_errors
from compress.quantize.channel_errors import ChannelErrors
from compress.sqnr import SignalToNoise

SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple)
VALUES = st.floats(-100, 100, width=32)


@st.composite
def outputs(draw):
    shape = draw(SHAPES)
    pair = [draw(arrays.arrays(np.float32, shape, elements=VALUES)) for _ in range(2)]
    return *pair, draw(st.integers(-len(shape), len(shape) - 1))


@given(outputs(), st.sampled_from([1, 5, 1 << 17]))
def test_the_sums_are_those_of_whole_arrays(given_outputs, piece):
    expected, got, axis = given_outputs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel_errors, "PIECE", piece)
        found = ChannelErrors.of(expected, got, axis)
    difference = np.moveaxis(expected.astype(np.float64) - got, axis, 0)
    difference = difference.reshape(len(difference), -1)
    assert found.count == difference.shape[1]
    assert found.means == pytest.approx(difference.mean(axis=1), rel=1e-4, abs=1e-3)
    assert found.squares == pytest.approx(np.square(difference).sum(axis=1), rel=1e-4, abs=1e-3)
    assert found.signal == pytest.approx(np.square(expected, dtype=np.float64).sum(), rel=1e-4)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_an_offset_per_channel_is_counted_as_if_it_were_added(axis):
    rng = np.random.default_rng(0)
    samples = [rng.normal(size=(2, 1, 6, 5, 4)).astype(np.float32) for _ in range(3)]
    errors = ChannelErrors.sum(ChannelErrors.of(one, other, axis) for one, other in samples)
    shape = [1] * 4
    shape[axis] = -1
    meter = SignalToNoise()
    for one, other in samples:
        meter.update(one, other + errors.means.astype(np.float32).reshape(shape))
    assert errors.meter(errors.means).sqnr_db == pytest.approx(meter.sqnr_db, abs=1e-4)
    assert errors.meter().sqnr_db < errors.meter(errors.means).sqnr_db


def test_what_is_not_finite_shows_in_the_signal():
    values = np.ones((1, 3, 2), np.float32)
    values[0, 1, 0] = np.inf
    assert not np.isfinite(ChannelErrors.of(values, values, 1).signal)


def test_an_empty_output_has_no_errors():
    found = ChannelErrors.of(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), 1)
    assert found.means.tolist() == [0.0, 0.0, 0.0]


def test_another_shape_is_refused():
    with pytest.raises(CalibrationError, match="decision"):
        ChannelErrors.of(np.zeros((1, 3), np.float32), np.zeros((2, 3), np.float32), 1)
