"""Pixels become tensors as the spec says, and a spec survives being stored."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import InputError
from artifacts.input_spec import LETTERBOX_FILL, InputSpec

number = st.floats(-1e3, 1e3)
positive = st.floats(1e-3, 1e3)
specs = st.builds(
    InputSpec,
    color=st.sampled_from(["rgb", "bgr"]),
    pixel_scale=positive,
    mean=st.tuples(number, number, number),
    std=st.tuples(positive, positive, positive),
    resize=st.sampled_from(["stretch", "letterbox"]),
)


@given(specs)
def test_stored_spec_is_the_same(spec: InputSpec) -> None:
    assert InputSpec.from_json(spec.to_json()) == spec


@given(spec=specs, seed=st.integers(0, 1000))
def test_values_follow_the_formula(spec: InputSpec, seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (4, 6, 3), np.uint8)
    pixels = image[..., ::-1] if spec.color == "rgb" else image
    wanted = (pixels.astype(np.float64) * spec.pixel_scale - spec.mean) / spec.std
    got = spec.prepare(image, 4, 6)
    assert got.dtype == np.float32
    assert got.flags.c_contiguous
    largest = np.abs(pixels * spec.pixel_scale / np.array(spec.std)).max() + np.abs(wanted).max()
    np.testing.assert_allclose(
        got,
        wanted.transpose(2, 0, 1),
        atol=1e-6 * (largest + max(np.abs(spec.mean)) / min(spec.std)),
    )


def test_letterbox_keeps_the_aspect_and_fills_with_grey() -> None:
    image = np.full((10, 40, 3), 255, np.uint8)
    got = InputSpec(pixel_scale=1.0, resize="letterbox").prepare(image, 20, 20)
    is_picture = (got == 255).all(axis=0)
    assert is_picture.sum() == 20 * 5
    assert is_picture[8:12].all()
    assert set(np.unique(got[:, ~is_picture])) == {LETTERBOX_FILL}
    assert (InputSpec(pixel_scale=1.0).prepare(image, 20, 20) == 255).all()


def test_one_mean_makes_one_grey_channel() -> None:
    image = np.random.default_rng(0).integers(0, 256, (5, 5, 3), np.uint8)
    got = InputSpec(pixel_scale=1.0, mean=(0.0,), std=(1.0,)).prepare(image, 5, 5)
    luminance = image @ np.array([0.114, 0.587, 0.299])
    assert got.shape == (1, 5, 5)
    np.testing.assert_allclose(got[0], luminance, atol=1)


@pytest.mark.parametrize(
    "values",
    [
        {"color": "hsv"},
        {"color": ["rgb"]},
        {"resize": "crop"},
        {"pixel_scale": 0},
        {"pixel_scale": float("nan")},
        {"pixel_scale": "x"},
        {"std": [1, 0, 1]},
        {"std": [1, -1, 1]},
        {"mean": [1, 2]},
        {"mean": "abc"},
        {"mean": [None] * 3},
        {"mean": 3},
        {"mean": [10**400] * 3},
        {"mean": [], "std": []},
        {"colour": "rgb"},
    ],
)
def test_bad_values_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(InputError):
        InputSpec.from_dict(values)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "[" * 100_000, '{"a": NaN}', "null"])
def test_bad_json_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="input spec"):
        InputSpec.from_json(text)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
def test_no_value_escapes_as_another_error(value: object) -> None:
    for key in InputSpec.__dataclass_fields__:
        try:
            InputSpec.from_json(json.dumps({key: value}))
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
