"""Pixels are told by their levels, however they were scaled."""

from pathlib import Path

import numpy as np
import pytest

from artifacts.input_spec import InputSpec
from artifacts.pixel_levels import CONVENTIONS, find_ends
from artifacts.samples import TensorShape, open_samples

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(40, 200, (20, 30, 3), np.uint8)
GREY = InputSpec(mean=(0.3,), std=(0.2,))
OWN = InputSpec(mean=(0.3, 0.4, 0.5), std=(0.2, 0.3, 0.4))


def scaled(pixels: np.ndarray, spec: InputSpec) -> np.ndarray:
    return spec.prepare(pixels, 20, 30)[None]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spec", CONVENTIONS)
@pytest.mark.parametrize("is_last", [False, True], ids=["channels first", "channels last"])
def test_usual_scales_are_told(spec: InputSpec, is_last: bool, dtype: type) -> None:
    ends = [np.full_like(PIXELS, level) for level in (0, 255)]
    first, black, white = (
        one.transpose(0, 2, 3, 1) if is_last else one
        for one in (scaled(pixels, spec) for pixels in (PIXELS, *ends))
    )
    found = find_ends([first.astype(dtype)])
    assert found is not None
    for one, wanted in zip(found, (black, white), strict=True):
        assert one.shape == first.shape
        assert one.dtype == dtype
        assert one == pytest.approx(wanted, abs=1e-4)


def test_a_scale_that_nobody_said_is_not_guessed() -> None:
    assert find_ends([scaled(PIXELS, OWN)]) is None
    assert find_ends([scaled(PIXELS, OWN)], [OWN]) is not None
    assert find_ends([scaled(PIXELS, OWN)[:, ::-1]], [OWN]) is None


@pytest.mark.parametrize("spec", [OWN, GREY])
def test_arrays_of_pixels_of_the_given_spec_know_black_and_white(
    spec: InputSpec, tmp_path: Path
) -> None:
    values = scaled(PIXELS, spec)
    np.savez(tmp_path / "d.npz", x=values, depth=RNG.normal(size=values.shape))
    inputs = {name: TensorShape(values.shape) for name in ("x", "depth")}
    black, white = open_samples(tmp_path / "d.npz", inputs, spec).extremes
    for one, level in ((black, 0), (white, 255)):
        assert one["x"] == pytest.approx(scaled(np.full_like(PIXELS, level), spec), abs=1e-4)
    assert np.array_equal(black["depth"], white["depth"])
    assert open_samples(tmp_path / "d.npz", inputs, InputSpec(pixel_scale=1.0)).extremes == ()
