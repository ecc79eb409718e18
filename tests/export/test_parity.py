import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import InputError
from export.parity import TOLERANCES, check_parity, measure_sqnr_db

REFERENCE = {"y": np.linspace(-3, 3, 50, dtype=np.float32)}


@given(st.sampled_from(sorted(TOLERANCES)), st.floats(0.0, 4.0))
def test_an_error_passes_exactly_up_to_the_tolerance(dtype, share):
    limit = TOLERANCES[dtype].limit(REFERENCE["y"])
    damaged = REFERENCE["y"].astype(np.float64)
    damaged[7] += limit * share
    reference = {"y": REFERENCE["y"].astype(np.float64)}
    if share <= 0.99:
        assert check_parity(reference, {"y": damaged}, dtype=dtype, what="it")["y"] <= limit
    elif share >= 1.01:
        with pytest.raises(InputError, match="off by"):
            check_parity(reference, {"y": damaged}, dtype=dtype, what="it")


def test_shapes_names_dtypes_and_nan_are_told_apart():
    y = REFERENCE["y"]
    broken = y.copy()
    broken[0] = np.nan
    for candidate in ({"z": y}, {"y": y[:-1]}, {"y": y.astype(np.float16)}, {"y": broken}):
        with pytest.raises(InputError):
            check_parity(REFERENCE, candidate, dtype="float32", what="it")


def test_integers_must_be_equal():
    reference = {"label": np.arange(5)}
    check_parity(reference, {"label": np.arange(5)}, dtype="float32", what="it")
    with pytest.raises(InputError):
        check_parity(reference, {"label": np.array([0, 1, 2, 3, 5])}, dtype="float32", what="it")


def test_sqnr_falls_by_20_db_per_tenfold_error():
    signal = np.random.default_rng(0).normal(size=1000)
    assert measure_sqnr_db(signal, signal) == float("inf")
    small, large = (measure_sqnr_db(signal, signal * (1 + e)) for e in (1e-3, 1e-2))
    assert small - large == pytest.approx(20, abs=1e-6)
    assert large == pytest.approx(40, abs=1e-6)
