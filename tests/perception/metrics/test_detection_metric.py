import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.errors import InconclusiveError, InputError
from perception.metrics.detection import MeanAveragePrecision, average_precision, match_boxes

BOX = np.array([[10, 10, 30, 30]], np.float32)
NONE = np.zeros((0, 4), np.float32)


def measure(*pictures, classes=("car", "truck")):
    metric = MeanAveragePrecision(classes)
    for boxes, scores, labels, true_boxes, true_labels in pictures:
        metric.update(
            np.asarray(boxes, np.float32).reshape(-1, 4),
            np.asarray(scores, np.float32),
            np.asarray(labels, np.int64),
            np.asarray(true_boxes, np.float32).reshape(-1, 4),
            np.asarray(true_labels, np.int64),
        )
    return metric.compute()


def test_perfect_detections_score_one():
    figures = measure((BOX, [0.9], [0], BOX, [0]))
    assert figures["mAP50"] == figures["mAP50:95"] == figures["AP50 car"] == 1


def test_a_class_that_never_occurs_is_not_counted():
    assert "AP50 truck" not in measure((BOX, [0.9], [0], BOX, [0]))


def test_the_wrong_class_scores_nothing():
    assert measure((BOX, [0.9], [1], BOX, [0]))["mAP50"] == 0


def test_nothing_found_scores_nothing():
    assert measure((NONE, [], [], BOX, [0]))["mAP50"] == 0


def test_a_loose_box_counts_at_low_thresholds_only():
    loose = BOX + np.array([0, 0, 10, 0], np.float32)
    figures = measure((loose, [0.9], [0], BOX, [0]))
    assert figures["mAP50"] == 1
    assert figures["mAP50:95"] == pytest.approx(0.4)


def test_a_second_detection_of_one_object_is_wrong():
    twice = np.concatenate([BOX, BOX])
    assert match_boxes(twice, BOX, np.array([0.5])).tolist() == [[True, False]]


def test_by_hand_two_of_three_found_with_one_mistake():
    # right, wrong, right of 3: precision 1 up to recall 1/3, then 2/3 up to 2/3, then 0.
    expected = (34 * 1 + 33 * 2 / 3) / 101
    assert average_precision(np.array([True, False, True]), 3) == pytest.approx(expected)


def test_scores_are_ranked_over_all_pictures():
    good, bad = (BOX, [0.4], [0], BOX, [0]), (BOX + 200, [0.9], [0], NONE, [])
    assert measure(good, bad)["mAP50"] == pytest.approx(0.5)


def test_without_any_object_there_is_no_figure():
    with pytest.raises(InconclusiveError):
        measure((BOX, [0.9], [0], NONE, []))


def test_arrays_of_different_lengths_are_refused():
    with pytest.raises(InputError, match="scores"):
        measure((BOX, [0.9, 0.8], [0], BOX, [0]))


@settings(deadline=None)
@given(hits=st.lists(st.booleans(), max_size=30), missed=st.integers(1, 10))
def test_average_precision_stays_in_bounds_and_mistakes_at_the_end_cost_nothing(hits, missed):
    row = np.array(hits, bool)
    total = int(row.sum()) + missed
    value = average_precision(row, total)
    assert 0 <= value <= (row.sum() / total) + 0.011
    assert average_precision(np.append(row, [False] * 5), total) == pytest.approx(value)
    assert average_precision(np.append(False, row), total) <= value + 1e-12
