import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perception.frame.decode import decode_detections, pairwise_iou
from perception.heads.assignment import MIN_DISTANCE, BoxAssignment, assign_level
from perception.scene.sample import Scene


def scene_of(boxes, labels, height=128, width=192):
    return Scene(
        image=np.zeros((height, width, 3), np.uint8),
        boxes=np.asarray(boxes, np.float32).reshape(-1, 4),
        labels=np.asarray(labels, np.int64),
        mask=np.zeros((height, width), np.uint8),
        depth=np.ones((height, width), np.float32),
    )


def test_distances_reach_from_the_location_to_the_edges():
    classes, distances = assign_level(
        np.array([[8, 16, 40, 64]], np.float32), np.array([2]), (16, 16), 8, 1.5
    )
    assert classes[4, 2] == 2
    assert distances[:, 4, 2].tolist() == [1.5, 2.5, 2.5, 3.5]
    assert classes[0, 0] == -1


def test_only_locations_near_the_centre_learn_a_box():
    classes, _ = assign_level(
        np.array([[0, 0, 128, 128]], np.float32), np.array([0]), (16, 16), 8, 1.5
    )
    rows, columns = np.nonzero(classes == 0)
    assert rows.min() >= 6
    assert rows.max() <= 9
    assert columns.min() >= 6
    assert columns.max() <= 9


def test_the_smaller_of_two_overlapping_boxes_wins():
    boxes = np.array([[32, 32, 96, 96], [56, 56, 72, 72]], np.float32)
    for order in ([0, 1], [1, 0]):
        classes, _ = assign_level(boxes[order], np.array([0, 1])[order], (16, 16), 8, 1.5)
        assert classes[7, 7] == 1


def test_a_box_that_holds_no_location_still_gets_one():
    classes, distances = assign_level(
        np.array([[8.5, 8.5, 10, 11]], np.float32), np.array([1]), (4, 4), 8, 1.5
    )
    assert np.count_nonzero(classes == 1) == 1
    assert (distances > 0).all()


def test_size_decides_the_level():
    targets = BoxAssignment().encode(scene_of([[8, 8, 24, 24], [20, 4, 190, 124]], [0, 1]), 1.0)
    assert set(np.unique(targets["class_8"])) == {-1, 0}
    assert set(np.unique(targets["class_16"])) == {-1, 1}


def test_a_box_near_the_limit_is_learned_by_both_levels():
    targets = BoxAssignment().encode(scene_of([[40, 20, 120, 100]], [0]), 1.0)
    assert (targets["class_8"] == 0).any()
    assert (targets["class_16"] == 0).any()


def test_a_scene_without_objects_is_all_background():
    targets = BoxAssignment().encode(scene_of([], []), 1.0)
    assert (targets["class_8"] == -1).all()
    assert (targets["class_16"] == -1).all()


@settings(deadline=None, max_examples=60)
@example(x=4.0, y=4.0, w=17.0, h=17.0, label=0)
@given(
    x=st.floats(0, 150), y=st.floats(0, 90), w=st.floats(17, 42), h=st.floats(17, 38),
    label=st.integers(0, 2),
)  # fmt: skip
def test_decoding_perfect_outputs_gives_the_box_back(x, y, w, h, label):
    box = np.array([[x, y, x + w, y + h]], np.float32)
    targets = BoxAssignment().encode(scene_of(box, [label]), 1.0)
    outputs = {}
    for stride in (8, 16):
        classes = targets[f"class_{stride}"]
        logits = np.full((1, 3, *classes.shape), -9.0, np.float32)
        for index in range(3):
            logits[0, index][classes == index] = 9.0
        outputs[f"detection_class_{stride}"] = logits
        outputs[f"detection_box_{stride}"] = np.log(targets[f"box_{stride}"])[None]
        outputs[f"detection_centre_{stride}"] = np.full_like(logits[:, :1], 9.0)
    head = {"outputs": list(outputs), "strides": [8, 16], "classes": ["a", "b", "c"]}
    found = decode_detections(outputs, head)
    assert len(found) == 1
    assert found.labels[0] == label
    widest_error = MIN_DISTANCE * 8  # pixels: a location on the box's edge cannot say 0
    is_on_the_edge = any(
        (targets[f"box_{stride}"] == np.float32(MIN_DISTANCE)).any() for stride in (8, 16)
    )
    least = (17 / (17 + widest_error)) ** 2 - 1e-3 if is_on_the_edge else 0.97
    assert pairwise_iou(found.boxes, box)[0, 0] > least
