"""The decode: geometry of a planted box, suppression, bounded work and damaged outputs."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError
from perception.frame.decode import (
    count_non_finite,
    decode_depth,
    decode_detections,
    decode_segmentation,
    pairwise_iou,
    suppress_overlaps,
)

HEAD = {
    "outputs": [f"detection_{kind}_{s}" for s in (8, 16) for kind in ("class", "box", "centre")],
    "strides": [8, 16],
    "classes": ["car", "truck", "pedestrian"],
}
HEIGHT, WIDTH = 288, 512


def silent_outputs() -> dict:
    """Outputs of a network that sees nothing."""
    outputs = {}
    for stride in HEAD["strides"]:
        shape = (HEIGHT // stride, WIDTH // stride)
        outputs[f"detection_class_{stride}"] = np.full((1, 3, *shape), -9.0, np.float32)
        outputs[f"detection_box_{stride}"] = np.zeros((1, 4, *shape), np.float32)
        outputs[f"detection_centre_{stride}"] = np.zeros((1, 1, *shape), np.float32)
    return outputs


def plant(outputs, box, label, stride, logit=6.0, cell=None):
    """Writes the raw values that decode to `box` at the cell of its centre."""
    x1, y1, x2, y2 = box
    column, row = cell or (int((x1 + x2) / 2 // stride), int((y1 + y2) / 2 // stride))
    x, y = (column + 0.5) * stride, (row + 0.5) * stride
    outputs[f"detection_class_{stride}"][0, label, row, column] = logit
    outputs[f"detection_centre_{stride}"][0, 0, row, column] = logit
    reach = np.asarray([x - x1, y - y1, x2 - x, y2 - y]) / stride
    outputs[f"detection_box_{stride}"][0, :, row, column] = np.log(reach)


@settings(max_examples=40, deadline=None)
@given(
    x=st.floats(0, 400), y=st.floats(0, 200), w=st.floats(24, 110), h=st.floats(24, 80),
    label=st.integers(0, 2), stride=st.sampled_from([8, 16]),
)  # fmt: skip
def test_planted_box_comes_back(x, y, w, h, label, stride):
    outputs = silent_outputs()
    plant(outputs, (x, y, x + w, y + h), label, stride)
    found = decode_detections(outputs, HEAD)
    assert found.labels.tolist() == [label]
    np.testing.assert_allclose(found.boxes[0], [x, y, x + w, y + h], atol=0.05)
    probability = 1 / (1 + np.exp(-6.0))
    assert found.scores[0] == pytest.approx(probability, rel=1e-4)


def test_nothing_to_see_gives_empty_arrays():
    found = decode_detections(silent_outputs(), HEAD)
    assert found.boxes.shape == (0, 4)
    assert len(found) == 0
    assert found.non_finite == 0


def test_suppression_is_per_class_and_keeps_the_better():
    outputs = silent_outputs()
    box = (100, 100, 180, 160)
    plant(outputs, box, 0, 8, logit=3.0, cell=(17, 16))
    plant(outputs, box, 0, 8, logit=5.0, cell=(18, 16))
    plant(outputs, box, 1, 16, logit=2.0)
    found = decode_detections(outputs, HEAD)
    assert found.labels.tolist() == [0, 1]
    assert found.scores[0] == pytest.approx(1 / (1 + np.exp(-5.0)), rel=1e-4)


def test_threshold_is_on_the_joint_score():
    outputs = silent_outputs()
    plant(outputs, (100, 100, 180, 160), 0, 8, logit=5.0)
    outputs["detection_centre_8"][:] = -4.0
    score = np.sqrt(1 / (1 + np.exp(-5.0)) / (1 + np.exp(4.0)))
    assert len(decode_detections(outputs, HEAD, score_threshold=score * 1.01)) == 0
    assert len(decode_detections(outputs, HEAD, score_threshold=score * 0.99)) == 1


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), threshold=st.floats(0.1, 0.9), limit=st.integers(1, 50))
def test_kept_boxes_do_not_overlap_and_dropped_ones_do(seed, threshold, limit):
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 100, (60, 2))
    boxes = np.hstack([corner, corner + rng.uniform(1, 60, (60, 2))]).astype(np.float32)
    labels = rng.integers(0, 3, 60)
    kept = suppress_overlaps(boxes, labels, threshold, limit)
    assert len(kept) <= limit
    iou = pairwise_iou(boxes, boxes)
    same = labels[:, None] == labels
    for position, index in enumerate(kept):
        better = kept[:position]
        assert not (same[index, better] & (iou[index, better] > threshold)).any()
    if len(kept) < limit:
        for index in set(range(60)) - set(kept.tolist()):
            better = kept[kept < index]
            assert (same[index, better] & (iou[index, better] > threshold)).any()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_iou_is_symmetric_bounded_and_one_with_itself(seed):
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 500, (20, 2))
    boxes = np.hstack([corner, corner + rng.uniform(0.5, 300, (20, 2))]).astype(np.float32)
    iou = pairwise_iou(boxes, boxes)
    np.testing.assert_allclose(iou, iou.T, atol=1e-6)
    np.testing.assert_allclose(np.diag(iou), 1, atol=1e-5)
    assert (iou >= 0).all()
    assert (iou <= 1 + 1e-5).all()


def test_known_overlap_and_degenerate_boxes():
    boxes = np.asarray([[0, 0, 10, 10], [5, 0, 15, 10], [3, 3, 3, 3]], np.float32)
    iou = pairwise_iou(boxes, boxes)
    assert iou[0, 1] == pytest.approx(50 / 150)
    assert iou[2].tolist() == [0, 0, 0]


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["class", "box", "centre"])
def test_poisoned_values_are_counted_and_healthy_ones_still_decoded(poison, kind):
    outputs = silent_outputs()
    plant(outputs, (40, 40, 120, 100), 0, 8)
    plant(outputs, (300, 150, 420, 250), 1, 8)
    row, column = 70 // 8, 80 // 8
    outputs[f"detection_{kind}_8"][0, :, row, column] = poison
    found = decode_detections(outputs, HEAD)
    assert found.labels.tolist() == [1]
    assert found.non_finite == outputs[f"detection_{kind}_8"].shape[1]
    assert np.isfinite(found.boxes).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_wholly_poisoned_outputs_give_no_detection(poison):
    outputs = {name: np.full_like(value, poison) for name, value in silent_outputs().items()}
    found = decode_detections(outputs, HEAD)
    assert len(found) == 0
    assert found.non_finite == sum(value.size for value in outputs.values())


def test_huge_distances_stay_inside_the_picture():
    outputs = silent_outputs()
    outputs["detection_class_8"][0, 0, 5, 5] = 9
    outputs["detection_centre_8"][0, 0, 5, 5] = 9
    outputs["detection_box_8"][0, :, 5, 5] = 1e30
    found = decode_detections(outputs, HEAD)
    assert found.boxes.tolist() == [[0, 0, WIDTH, HEIGHT]]


def test_half_precision_outputs_decode_alike():
    outputs = silent_outputs()
    plant(outputs, (40, 40, 120, 100), 2, 16)
    half = {name: value.astype(np.float16) for name, value in outputs.items()}
    full_found, half_found = decode_detections(outputs, HEAD), decode_detections(half, HEAD)
    np.testing.assert_allclose(half_found.boxes, full_found.boxes, atol=0.5)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_result_is_ordered_and_within_limits_on_noise(seed):
    rng = np.random.default_rng(seed)
    outputs = {k: rng.normal(0, 3, v.shape).astype(np.float32) for k, v in silent_outputs().items()}
    found = decode_detections(outputs, HEAD, max_detections=30)
    assert len(found) <= 30
    assert (np.diff(found.scores) <= 0).all()
    assert (found.boxes[:, 2:] >= found.boxes[:, :2]).all()
    assert (found.boxes >= 0).all()


def test_missing_output_is_named():
    outputs = silent_outputs()
    del outputs["detection_box_16"]
    with pytest.raises(InputError, match="detection_box_16"):
        decode_detections(outputs, HEAD)


def test_segmentation_is_the_argmax():
    logits = np.random.default_rng(0).normal(size=(1, 6, 72, 128)).astype(np.float32)
    mask = decode_segmentation({"segmentation": logits}, {"outputs": ["segmentation"]})
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(mask, logits[0].argmax(0))


def test_segmentation_ignores_nan():
    logits = np.zeros((1, 6, 4, 4), np.float32)
    logits[0, 3] = 1
    logits[0, 0] = np.nan
    logits[0, :, 0, 0] = np.nan
    mask = decode_segmentation({"segmentation": logits}, {"outputs": ["segmentation"]})
    assert mask[0, 0] == 0
    assert (mask.reshape(-1)[1:] == 3).all()


def test_depth_inverts_its_encoding_and_is_bounded():
    metres = np.geomspace(0.6, 190, 12).astype(np.float32).reshape(1, 1, 3, 4)
    depth = decode_depth({"depth": -np.log(metres)}, {"outputs": ["depth"]})
    np.testing.assert_allclose(depth, metres[0, 0], rtol=1e-5)
    wild = np.asarray([np.nan, np.inf, -np.inf, 1e30, -1e30], np.float32).reshape(1, 1, 1, 5)
    bounded = decode_depth({"depth": wild}, {"outputs": ["depth"]})
    np.testing.assert_allclose(bounded, [[200, 0.5, 200, 0.5, 200]], rtol=1e-5)
    assert count_non_finite([wild]) == 3


@pytest.mark.timing
def test_worst_case_stays_far_below_a_frame():
    rng = np.random.default_rng(1)
    outputs = {k: rng.normal(0, 3, v.shape).astype(np.float32) for k, v in silent_outputs().items()}
    times_ms = []
    for _ in range(20):
        started_ns = time.perf_counter_ns()
        decode_detections(outputs, HEAD)
        times_ms.append((time.perf_counter_ns() - started_ns) / 1e6)
    assert min(times_ms) < 15
