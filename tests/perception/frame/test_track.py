"""Tracking keeps ids through noise, crossings and short occlusions, and finds true motion."""

import numpy as np
import pytest

from perception.frame.decode import Detections, pairwise_iou
from perception.frame.ground import default_camera, locate_boxes
from perception.frame.track import Tracker, TrackerSettings
from perception.scene.sequence import SceneSequence

DT_S = 1 / 30
CLASSES = ("car", "truck", "pedestrian")
INPUT_HW = (288, 512)
CAMERA = default_camera(*INPUT_HW)


def detections(boxes, labels=None, scores=None):
    boxes = np.asarray(boxes, np.float32).reshape(-1, 4)
    count = len(boxes)
    return Detections(
        boxes,
        np.asarray(scores if scores is not None else [0.9] * count, np.float32),
        np.asarray(labels if labels is not None else [0] * count, np.int64),
    )


def step(tracker, boxes, labels=None, ego_speed_mps=0.0, positions=None):
    found = detections(boxes, labels)
    if positions is None:
        positions = locate_boxes(found.boxes, CAMERA)
    return tracker.update(found, np.asarray(positions, float).reshape(-1, 2), DT_S, ego_speed_mps)


def box_at(x, z, width=1.8, height=1.5):
    """The box of an object standing at x, z."""
    corners = np.asarray([[x - width / 2, 0, z], [x + width / 2, height, z]])
    low, high = CAMERA.to_pixels(CAMERA.to_camera(corners))
    return [low[0], high[1], high[0], low[1]]


def test_track_is_confirmed_after_three_hits_and_dies_after_its_allowance():
    tracker = Tracker(CLASSES, INPUT_HW, TrackerSettings(max_misses=5))
    counts = [len(step(tracker, [[100, 100, 150, 140]])) for _ in range(4)]
    assert counts == [0, 0, 1, 1]
    counts = [len(step(tracker, [])) for _ in range(7)]
    assert counts == [1, 1, 1, 1, 1, 0, 0]


def test_single_false_detection_never_shows():
    tracker = Tracker(CLASSES, INPUT_HW)
    assert len(step(tracker, [[10, 10, 60, 60]])) == 0
    assert all(len(step(tracker, [])) == 0 for _ in range(5))


def test_ids_are_never_used_again():
    tracker = Tracker(CLASSES, INPUT_HW, TrackerSettings(max_misses=1))
    seen = []
    for start in (50, 200, 350):
        for _ in range(4):
            tracks = step(tracker, [[start, 100, start + 40, 140]])
        seen += tracks.ids.tolist()
        for _ in range(4):
            step(tracker, [])
    assert len(set(seen)) == 3


@pytest.mark.parametrize("seed", range(5))
def test_ids_survive_a_crossing(seed):
    rng = np.random.default_rng(seed)
    tracker = Tracker(CLASSES, INPUT_HW)
    owners = {}
    for frame in range(90):
        left, right = 60 + 4.0 * frame, 440 - 4.0 * frame
        boxes = np.asarray([[left, 100, left + 60, 150], [right, 108, right + 52, 150]])
        boxes = boxes + rng.normal(0, 0.8, (2, 4))
        hidden = abs(left - right) < 25
        tracks = step(tracker, boxes[:1] if hidden else boxes)
        for track, box in zip(tracks.ids, tracks.boxes, strict=True):
            if frame in (20, 80):
                moving_right = abs(box[0] - left) < abs(box[0] - right)
                owners.setdefault(int(track), set()).add(bool(moving_right))
    assert len(owners) == 2
    assert all(len(sides) == 1 for sides in owners.values())


def test_id_survives_a_short_occlusion_of_a_moving_object():
    tracker = Tracker(CLASSES, INPUT_HW)
    for frame in range(60):
        box = [50 + 5.0 * frame, 100, 100 + 5.0 * frame, 140]
        tracks = step(tracker, [] if 30 <= frame < 40 else [box])
        if frame == 35:
            assert tracks.misses.tolist() == [6]
            np.testing.assert_allclose(tracks.boxes[0], box, atol=12)
    assert tracks.ids.tolist() == [1]
    assert tracks.misses.tolist() == [0]


def test_label_follows_the_evidence():
    tracker = Tracker(CLASSES, INPUT_HW)
    for frame in range(12):
        tracks = step(tracker, [[100, 100, 150, 140]], labels=[1 if frame == 8 else 0])
    assert tracks.labels.tolist() == [0]
    assert tracks.ids.tolist() == [1]


@pytest.mark.parametrize(
    ("velocity", "ego_speed_mps"), [((0, 8), 12.0), ((2, -6), 10.0), ((-3, 0), 0.0)]
)
def test_velocity_over_ground_is_found_from_a_moving_camera(velocity, ego_speed_mps):
    rng = np.random.default_rng(1)
    tracker = Tracker(CLASSES, INPUT_HW)
    x, z = 1.0, 55.0
    for _ in range(75):
        x, z = x + velocity[0] * DT_S, z + (velocity[1] - ego_speed_mps) * DT_S
        place = [x + rng.normal(0, 0.05), z + rng.normal(0, 0.1)]
        tracks = step(tracker, [box_at(x, z)], ego_speed_mps=ego_speed_mps, positions=[place])
    np.testing.assert_allclose(tracks.velocities[0], velocity, atol=0.8)
    expected = np.arctan2(*velocity)
    assert np.cos(tracks.headings[0] - expected) > 0.95


def test_yaw_rate_of_a_turning_object():
    tracker = Tracker(CLASSES, INPUT_HW)
    speed, yaw_rate = 8.0, 0.4
    x, z, heading = -8.0, 25.0, 0.0
    for _ in range(90):
        heading += yaw_rate * DT_S
        x, z = x + speed * np.sin(heading) * DT_S, z + speed * np.cos(heading) * DT_S
        tracks = step(tracker, [box_at(x, z)], positions=[[x, z]])
    assert tracks.yaw_rates[0] == pytest.approx(yaw_rate, abs=0.15)


def test_an_object_that_leaves_the_picture_is_dropped_at_once():
    tracker = Tracker(CLASSES, INPUT_HW)
    for frame in range(20):
        tracks = step(tracker, [[430 + 3 * frame, 100, min(490 + 3 * frame, 512), 160]])
    assert len(tracks) == 1
    counts = [len(step(tracker, [])) for _ in range(8)]
    assert counts[-1] == 0


def test_number_of_tracks_is_bounded():
    tracker = Tracker(CLASSES, INPUT_HW, TrackerSettings(max_tracks=10, confirm_hits=1))
    grid = [[x, y, x + 12, y + 12] for x in range(0, 480, 20) for y in range(100, 260, 20)]
    for _ in range(5):
        tracks = step(tracker, grid)
    assert len(tracks) <= 10


def test_random_detections_never_break_it():
    rng = np.random.default_rng(7)
    tracker = Tracker(CLASSES, INPUT_HW)
    for _ in range(100):
        corner = rng.uniform(0, 250, (int(rng.integers(0, 40)), 2))
        boxes = np.hstack([corner, corner + rng.uniform(0, 100, corner.shape)])
        tracks = step(tracker, boxes, labels=rng.integers(0, 3, len(boxes)))
        assert len(set(tracks.ids.tolist())) == len(tracks)
        for values in (tracks.boxes, tracks.positions, tracks.velocities, tracks.headings):
            assert np.isfinite(values).all()


@pytest.mark.parametrize("seed", [3, 5])
def test_ids_follow_the_truth_of_a_rendered_drive(seed):
    rng = np.random.default_rng(seed)
    sequence = SceneSequence(seed, *INPUT_HW)
    tracker = Tracker(CLASSES, INPUT_HW)
    last: dict[int, int] = {}
    same = switched = 0
    for index in range(60):
        scene = sequence.frame(index)
        found = detections(scene.boxes + rng.normal(0, 0.6, scene.boxes.shape), scene.labels)
        positions = locate_boxes(found.boxes, sequence.camera, np.minimum(scene.depth, 200))
        tracks = tracker.update(found, positions, DT_S, 10.0)
        if not len(tracks):
            continue
        overlap = pairwise_iou(scene.boxes, tracks.boxes.astype(np.float32))
        for truth, row in zip(scene.ids, overlap, strict=True):
            if row.max() > 0.5:
                follower = int(tracks.ids[row.argmax()])
                switched += last.setdefault(int(truth), follower) != follower
                same += last[int(truth)] == follower
                last[int(truth)] = follower
    assert same > 150
    assert switched <= 0.03 * same
