import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from artifacts.errors import InconclusiveError, InputError
from perception.metrics.depth import DepthError
from perception.metrics.segmentation import MeanIoU

masks = arrays(np.uint8, (6, 7), elements=st.integers(0, 2))


def iou(mask, true, classes=("a", "b", "c")):
    metric = MeanIoU(classes)
    metric.update(np.asarray(mask, np.uint8), np.asarray(true, np.uint8))
    return metric.compute()


def test_by_hand_one_of_four_pixels_wrong():
    figures = iou([[0, 0, 1, 1]], [[0, 1, 1, 1]])
    assert figures["IoU a"] == 0.5
    assert figures["IoU b"] == pytest.approx(2 / 3)
    assert figures["mIoU"] == pytest.approx((0.5 + 2 / 3) / 2)
    assert "IoU c" not in figures


def test_unknown_pixels_do_not_count():
    assert iou([[0, 1]], [[0, 255]])["mIoU"] == 1


@settings(deadline=None)
@given(mask=masks, true=masks)
def test_iou_is_symmetric_and_one_only_where_equal(mask, true):
    value = iou(mask, true)["mIoU"]
    assert value == pytest.approx(iou(true, mask)["mIoU"])
    assert (value == 1) == bool((mask == true).all())


@settings(deadline=None)
@given(mask=masks, true=masks)
def test_pictures_add_up_like_one_large_picture(mask, true):
    metric = MeanIoU(("a", "b", "c"))
    metric.update(mask[:3], true[:3])
    metric.update(mask[3:], true[3:])
    assert metric.compute() == iou(mask, true)


@pytest.mark.parametrize("mask", [[[0, 3]], [[0, 1, 1]]])
def test_masks_that_do_not_fit_are_refused(mask):
    with pytest.raises(InputError):
        iou(mask, [[0, 1]])


def test_no_known_pixel_gives_no_figure():
    with pytest.raises(InconclusiveError):
        iou([[0]], [[255]])
    with pytest.raises(InconclusiveError):
        DepthError().compute()


def test_depth_error_by_hand():
    metric = DepthError()
    metric.update(
        np.array([[11, 5, 7, 7, 7, 7]], np.float32),
        np.array([[10, 10, np.inf, np.nan, 0, 80]], np.float32),
    )
    assert metric.compute()["abs_rel"] == pytest.approx((0.1 + 0.5) / 2)
    assert metric.compute()["delta1"] == 0.5


@settings(deadline=None)
@given(factor=st.floats(0.5, 2.0))
def test_a_constant_factor_is_the_relative_error(factor):
    true = np.linspace(1, 79, 40, dtype=np.float32).reshape(4, 10)
    metric = DepthError()
    metric.update((true * np.float32(factor)).astype(np.float32), true)
    assert metric.compute()["abs_rel"] == pytest.approx(abs(factor - 1), abs=1e-5)


def test_depths_of_different_sizes_are_refused():
    with pytest.raises(InputError):
        DepthError().update(np.ones((2, 2), np.float32), np.ones((2, 3), np.float32))
