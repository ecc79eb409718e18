"""Pictures show what was found, at the picture's own size, and survive awkward input."""

import numpy as np
import pytest

from perception.frame import lettering
from perception.frame.decode import Detections
from perception.frame.draw import (
    compose_side_by_side,
    draw_detections,
    draw_frame,
    draw_plan,
    inset_depth,
    overlay_mask,
)
from perception.frame.ground import default_camera, project_ground
from perception.frame.plan import Plan
from perception.frame.road_frame import FrameState

INPUT_HW = (288, 512)
CAMERA = default_camera(*INPUT_HW)
HEADS = {
    "detection": {"classes": ["car", "truck", "pedestrian"]},
    "segmentation": {"classes": ["background", "sidewalk", "drivable"]},
}


def grey(height=360, width=640):
    return np.full((height, width, 3), 90, np.uint8)


def detections(boxes, labels=None):
    boxes = np.asarray(boxes, np.float32)
    labels = np.asarray(labels or [0] * len(boxes), np.int64)
    return Detections(boxes, np.full(len(boxes), 0.5, np.float32), labels)


def plan(is_feasible=True, length_m=30.0):
    forward = np.linspace(length_m / 15, length_m, 15)
    positions = np.stack([np.zeros(15), forward], axis=1)
    return Plan(np.arange(15) * 0.2, positions, np.full(15, 10.0), is_feasible, 50.0, 0.0)


def test_a_box_changes_its_outline_and_little_else():
    picture = grey()
    draw_detections(picture, detections([[100, 100, 200, 180]]), ["car"], INPUT_HW)
    changed = (picture != 90).any(axis=2)
    assert changed[225, 125:250].all()
    assert not changed[140:210, 140:235].any()
    assert not changed[:, :110].any()


@pytest.mark.parametrize(
    "box", [[0, 0, 512, 288], [-20, -20, 5, 5], [505, 280, 530, 300], [7, 7, 7, 7]]
)
def test_boxes_at_the_edges_are_drawn(box):
    for size in ((360, 640), (64, 64)):
        draw_detections(grey(*size), detections([box]), ["pedestrian"], INPUT_HW)


def test_unknown_classes_get_a_colour():
    picture = grey()
    draw_detections(picture, detections([[10, 50, 90, 90]] * 5, list(range(5))), "abcde", INPUT_HW)
    assert (picture != 90).any()


def test_only_classes_with_a_colour_are_tinted():
    mask = np.zeros((72, 128), np.uint8)
    mask[36:] = 2
    picture = grey()
    overlay_mask(picture, mask, HEADS["segmentation"]["classes"])
    assert (picture[:170] == 90).all()
    assert (picture[190:] != 90).any(axis=2).all()


def test_the_path_lies_where_the_road_projects_and_tells_braking_by_colour():
    safe, braking = grey(), grey()
    draw_plan(safe, plan(), CAMERA)
    draw_plan(braking, plan(is_feasible=False), CAMERA)
    u, v = (project_ground(np.asarray([0.0, 10.0]), CAMERA) * 640 / 512).astype(int)
    assert safe[v, u, 1] > 120 > safe[v, u, 2]
    assert braking[v, u, 2] > 120 > braking[v, u, 1]
    assert (safe[:100] == 90).all()


def test_what_stands_in_front_hides_the_path():
    picture = grey()
    draw_plan(picture, plan(), CAMERA, np.ones((360, 640), np.float32))
    assert (picture == 90).all()


def test_a_plan_that_stands_still_draws_nothing():
    picture = grey()
    draw_plan(picture, plan(length_m=1e-9), CAMERA)
    assert (picture == 90).all()


def test_depth_inset_is_red_near_and_blue_far():
    near, far = grey(), grey()
    inset_depth(near, np.full((72, 128), 3.0, np.float32))
    inset_depth(far, np.full((72, 128), 70.0, np.float32))
    assert near[40, 560, 2] > near[40, 560, 0]
    assert far[40, 560, 0] > far[40, 560, 2]


def test_a_frame_is_drawn_whole_or_in_parts_without_changing_its_picture():
    state = FrameState(grey())
    assert (draw_frame(state, {}, INPUT_HW) == 90).all()
    state.detections = detections([[100, 100, 200, 180]])
    state.mask = np.full((72, 128), 2, np.uint8)
    state.depth = np.full((72, 128), 10, np.float32)
    state.plan = plan()
    drawn = draw_frame(state, HEADS, INPUT_HW)
    assert drawn.shape == state.picture.shape
    assert (drawn != 90).any()
    assert (state.picture == 90).all()


def test_side_by_side_keeps_left_left():
    left, right = np.zeros((90, 160, 3), np.uint8), np.full((90, 160, 3), 255, np.uint8)
    both = compose_side_by_side(
        left, right, title="t", captions=("30 ms", "10 ms"), panel_width=320
    )
    middle = both.shape[0] // 2
    assert both[middle, :320].max() == 0
    assert both[middle, -320:].min() == 255


def test_text_is_written_with_the_strokes_of_opencv_4_too(monkeypatch):
    import cv2

    monkeypatch.delattr(cv2, "FontFace", raising=False)
    picture = grey()
    lettering.write_text(picture, "car 0.93", 20, 60, size_px=20)
    columns = np.flatnonzero((picture != 90).any(axis=(0, 2)))
    width = lettering.measure_text("car 0.93", size_px=20)
    assert columns[0] >= 18
    assert abs((columns[-1] - columns[0]) - width) < 12


def test_measured_width_is_the_written_width():
    picture = grey()
    lettering.write_text(picture, "pedestrian 0.93", 20, 60, size_px=20, is_bold=True)
    columns = np.flatnonzero((picture != 90).any(axis=(0, 2)))
    width = lettering.measure_text("pedestrian 0.93", size_px=20, is_bold=True)
    assert abs((columns[-1] - columns[0]) - width) < 12
