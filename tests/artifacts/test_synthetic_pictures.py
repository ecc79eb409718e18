"""Random pictures have the spectrum of photographs, whatever their size."""

import numpy as np
import pytest

from artifacts.input_spec import InputSpec
from artifacts.synthetic_pictures import draw_input, draw_pictures, draw_prepared


@pytest.mark.parametrize("shape", [(1, 3, 96, 96), (2, 1, 33, 70), (1, 2, 1, 1), (1, 700, 5, 3)])
def test_shape_mean_and_variance(shape):
    pictures = draw_pictures(shape, np.random.default_rng(0))
    assert pictures.shape == shape
    assert pictures.dtype == np.float32
    assert np.isfinite(pictures).all()
    assert abs(pictures.mean()) < 1e-4
    assert pictures.std() == pytest.approx(1, abs=1e-3)


def test_octaves_are_equally_strong():
    """Half the frequency holds as much power, as in photographs; white noise has a quarter."""
    (plane,) = draw_pictures((1, 1, 256, 256), np.random.default_rng(0))[0]
    power = np.abs(np.fft.fft2(plane)) ** 2
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(256), np.fft.fftfreq(256)))
    octaves = [
        power[(frequency >= f) & (frequency < 2 * f)].sum() for f in (1 / 64, 1 / 32, 1 / 16)
    ]
    assert max(octaves) < 2.5 * min(octaves)


def test_seed_repeats_it_and_other_ranks_are_noise():
    first, second = (draw_pictures((1, 3, 20, 20), np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    noise = draw_input((1, 20_000), np.random.default_rng(0))
    assert noise.std() == pytest.approx(1, abs=0.02)


def test_a_number_is_an_array_without_axes():
    number = draw_prepared((), np.random.default_rng(0), InputSpec())
    assert isinstance(number, np.ndarray)
    assert number.shape == ()


def test_prepared_pictures_are_pixels_as_the_spec_scales_them():
    draw = np.random.default_rng
    plain = draw_prepared((1, 3, 20, 20), draw(0), InputSpec())
    assert 0 <= plain.min() < 0.2
    assert 0.8 < plain.max() <= 1
    spec = InputSpec(pixel_scale=1, mean=(100, 110, 120), std=(50, 60, 70))
    scaled = draw_prepared((1, 3, 20, 20), draw(0), spec)
    mean, std = (np.reshape(part, (1, -1, 1, 1)) for part in (spec.mean, spec.std))
    np.testing.assert_allclose(scaled, (plain * 255 - mean) / std, atol=1e-5)
