"""Preprocessing equals the input spec's own definition and allocates nothing per frame."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from perception.frame.preprocess import Preprocessor

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@settings(max_examples=30, deadline=None)
@given(
    color=st.sampled_from(["rgb", "bgr"]),
    resize=st.sampled_from(["stretch", "letterbox"]),
    height=st.integers(8, 90), width=st.integers(8, 90),
    normal=st.sampled_from([{}, IMAGENET, {"mean": (0.5,), "std": (0.25,)}]),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_equals_the_input_spec(color, resize, height, width, normal, seed):
    spec = InputSpec(color=color, resize=resize, **normal)
    image = picture(height, width, seed)
    tensor = Preprocessor(spec, 32, 64).prepare(image)
    np.testing.assert_allclose(tensor[0], spec.prepare(image, 32, 64), rtol=1e-6, atol=1e-7)


def test_camera_size_equals_the_input_spec():
    spec = InputSpec(**IMAGENET)
    image = picture(720, 1280)
    tensor = Preprocessor(spec, 288, 512).prepare(image)
    assert tensor.shape == (1, 3, 288, 512)
    np.testing.assert_allclose(tensor[0], spec.prepare(image, 288, 512), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
def test_buffer_is_reused_and_holds_nothing_of_the_frame_before(resize):
    spec = InputSpec(resize=resize)
    preprocessor = Preprocessor(spec, 32, 64)
    first = preprocessor.prepare(picture(40, 40, 1))
    for image in (picture(80, 50, 2), picture(20, 90, 3), picture(32, 64, 4), picture(40, 40, 5)):
        tensor = preprocessor.prepare(image)
        assert tensor is first
        np.testing.assert_allclose(tensor[0], spec.prepare(image, 32, 64), rtol=1e-6, atol=1e-7)


def test_views_of_a_larger_picture_are_accepted():
    spec = InputSpec()
    crop = picture(100, 120)[10:80, 5:100]
    tensor = Preprocessor(spec, 32, 64).prepare(crop)
    np.testing.assert_allclose(tensor[0], spec.prepare(np.ascontiguousarray(crop), 32, 64))


@pytest.mark.parametrize(
    "wrong", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3))]
)
def test_other_layouts_are_refused(wrong):
    with pytest.raises(InputError, match="uint8"):
        Preprocessor(InputSpec(), 32, 64).prepare(wrong)
