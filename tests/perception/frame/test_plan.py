"""The planner goes on when free, avoids what is blocked and brakes when nothing else is left."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError
from perception.frame.collision import Obstacles, measure_clearance
from perception.frame.corridor import Corridor
from perception.frame.ground import default_camera, project_ground
from perception.frame.plan import Planner, PlannerSettings
from perception.frame.predict import PredictionSettings, predict_tracks
from perception.frame.track import Tracks

CAMERA = default_camera(288, 512)
BOX_CLASSES = ("car", "truck", "pedestrian")
MASK_CLASSES = ("background", "sidewalk", "drivable", "lane", "vehicle", "pedestrian")
TIMES_S = PredictionSettings().times_s


def tracks_of(*objects):
    """Tracks of (x, z, vx, vz, label) tuples."""
    rows = np.asarray(objects, float).reshape(-1, 5)
    count = len(rows)
    moving = np.hypot(rows[:, 2], rows[:, 3]) > 1
    return Tracks(
        ids=np.arange(count), labels=rows[:, 4].astype(np.int64), scores=np.ones(count),
        boxes=np.zeros((count, 4)), positions=rows[:, :2], velocities=rows[:, 2:4],
        headings=np.where(moving, np.arctan2(rows[:, 2], rows[:, 3]), 0.0),
        yaw_rates=np.zeros(count), position_sigmas=np.full((count, 2), 0.1),
        velocity_sigmas=np.full(count, 0.1), misses=np.zeros(count, np.int64),
    )  # fmt: skip


def road_mask(left_m=-5.5, right_m=5.5):
    """Class mask [72, 128] of a straight road between two edges."""
    v, u = np.mgrid[0:72, 0:128] * 4.0 + 1.5
    slope = (v - 143.5) / CAMERA.focal_px
    down = np.sin(CAMERA.pitch_rad) + np.cos(CAMERA.pitch_rad) * slope
    along = CAMERA.mount_height_m / np.maximum(down, 1e-4)
    x = (u - 255.5) / CAMERA.focal_px * along
    is_road = (down > 0.002) & (x > left_m) & (x < right_m)
    return np.where(is_road, 2, 0).astype(np.uint8)


def plan(*objects, mask=None, speed=12.0, planner=None):
    planner = planner or Planner(TIMES_S, BOX_CLASSES, MASK_CLASSES, CAMERA)
    tracks = tracks_of(*objects)
    return planner.plan(tracks, predict_tracks(tracks), mask, speed)


def test_free_road_is_driven_straight_at_the_target_speed():
    chosen = plan(mask=road_mask())
    assert chosen.is_feasible
    assert chosen.offset_m == 0
    assert chosen.speeds[-1] == pytest.approx(PlannerSettings().target_speed_mps)
    assert (np.diff(chosen.positions[:, 1]) > 0).all()


def test_blocked_lane_is_avoided_on_the_free_side():
    chosen = plan((-0.3, 32.0, 0, 0, 0), mask=road_mask())
    assert chosen.is_feasible
    assert chosen.offset_m > 0.8
    assert chosen.clearance_m > 0
    mirrored = plan((0.3, 32.0, 0, 0, 0), mask=road_mask())
    assert mirrored.offset_m < -0.8


def test_it_brakes_for_a_blocked_lane_when_both_sides_end():
    chosen = plan((0.0, 32.0, 0, 0, 0), mask=road_mask(-1.6, 1.6))
    assert chosen.is_feasible
    assert abs(chosen.offset_m) < 0.8
    assert chosen.positions[-1, 1] < 30
    assert chosen.speeds[-1] < 6


def test_it_brakes_hard_when_everything_is_blocked():
    wall = [(x, 9.0, 0, 0, 1) for x in np.arange(-6, 6.1, 2)]
    chosen = plan(*wall, mask=road_mask(), speed=14.0)
    assert not chosen.is_feasible
    assert chosen.clearance_m < 0
    deceleration = -np.diff(chosen.speeds) / np.diff(TIMES_S)
    assert deceleration.max() == pytest.approx(PlannerSettings().max_deceleration)
    assert chosen.speeds[-1] == 0


def test_it_stops_in_time_for_a_far_wall():
    wall = [(x, 33.0, 0, 0, 1) for x in np.arange(-6, 6.1, 2)]
    chosen = plan(*wall, mask=road_mask())
    assert chosen.is_feasible
    assert chosen.positions[-1, 1] + 2.05 < 33


def test_a_slower_car_ahead_is_not_rammed_and_a_faster_one_not_feared():
    slower = plan((0.0, 14.0, 0, 6, 0), mask=road_mask(-1.6, 1.6))
    assert slower.is_feasible
    assert slower.positions[-1, 1] + 2.05 < 14 + 6 * 3
    faster = plan((0.0, 14.0, 0, 16, 0), mask=road_mask(-1.6, 1.6))
    assert faster.positions[-1, 1] > slower.positions[-1, 1]


def test_a_pedestrian_about_to_cross_is_given_way():
    free = plan((5.0, 24.0, 0.0, 0, 2), mask=road_mask(-1.8, 1.8))
    crossing = plan((5.0, 24.0, -2.6, 0, 2), mask=road_mask(-1.8, 1.8))
    assert free.positions[-1, 1] > crossing.positions[-1, 1]
    assert crossing.clearance_m > 0


def test_the_road_mask_decides_the_side():
    narrow_left = plan((0.0, 32.0, 0, 0, 0), mask=road_mask(-1.6, 5.5))
    narrow_right = plan((0.0, 32.0, 0, 0, 0), mask=road_mask(-5.5, 1.6))
    assert narrow_left.offset_m > 0.8
    assert narrow_right.offset_m < -0.8


def test_no_road_ahead_means_braking():
    assert not plan(mask=np.zeros((72, 128), np.uint8)).is_feasible


def test_without_a_segmentation_head_it_still_plans():
    assert plan((0.0, 32.0, 0, 0, 0), mask=None).is_feasible


def test_the_choice_does_not_waver():
    planner = Planner(TIMES_S, BOX_CLASSES, MASK_CLASSES, CAMERA)
    first = plan((-0.4, 32.0, 0, 0, 0), mask=road_mask(), planner=planner)
    again = plan((0.05, 31.0, 0, 0, 0), mask=road_mask(), planner=planner)
    assert np.sign(first.offset_m) == np.sign(again.offset_m)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), speed=st.floats(0, 25), count=st.integers(0, 25))
def test_chosen_plans_touch_nothing_and_stay_within_the_vehicles_limits(seed, speed, count):
    rng = np.random.default_rng(seed)
    objects = np.stack(
        [
            rng.uniform(-8, 8, count), rng.uniform(3, 60, count), rng.normal(0, 1, count),
            rng.uniform(-12, 12, count), rng.integers(0, 3, count),
        ],
        axis=1,
    )  # fmt: skip
    chosen = plan(*objects, mask=road_mask(), speed=speed)
    assert np.isfinite(chosen.positions).all()
    assert (np.diff(chosen.positions[:, 1]) >= -1e-9).all()
    assert (chosen.speeds >= -1e-9).all()
    if chosen.is_feasible:
        assert chosen.clearance_m > 0
        change = np.diff(chosen.speeds) / np.diff(TIMES_S)
        assert (change >= -PlannerSettings().max_deceleration - 1e-6).all()


def test_predictions_for_other_times_are_refused():
    planner = Planner(TIMES_S, BOX_CLASSES, MASK_CLASSES, CAMERA)
    tracks = tracks_of()
    with pytest.raises(InputError, match="times"):
        planner.plan(tracks, predict_tracks(tracks, PredictionSettings(step_s=0.5)), None, 5.0)


@settings(max_examples=60, deadline=None)
@given(x=st.floats(-20, 20), z=st.floats(-20, 20), angle=st.floats(-np.pi, np.pi))
def test_clearance_is_the_distance_to_the_rectangle(x, z, angle):
    half = np.asarray([2.0, 1.0])
    obstacles = Obstacles(np.zeros((1, 1, 2)), np.full((1, 1), angle), half[None, None])
    gap = measure_clearance(np.asarray([x, z]).reshape(1, 1, 1, 2), 0.5, obstacles)[0, 0]
    parts = np.linspace(-1, 1, 81)
    along, across = np.meshgrid(parts * 2.0, parts)
    s, c = np.sin(angle), np.cos(angle)
    distance = np.hypot(along * s + across * c - x, along * c - across * s - z).min()
    assert gap == pytest.approx(distance - 0.5, abs=0.06)


def test_corridor_reads_the_class_under_a_point():
    corridor = Corridor(MASK_CLASSES, CAMERA)
    points = np.asarray([[0.0, 12.0], [-4.0, 12.0], [0.0, -5.0], [90.0, 12.0]])
    mask = np.full((72, 128), 2, np.uint8)
    for point, label in zip(points[:2], (3, 1), strict=True):
        u, v = ((project_ground(point, CAMERA) + 0.5) / 4).astype(int)
        mask[v, u] = label
    off_road, on_line = corridor.measure(points, mask)
    assert off_road.tolist() == [False, True, False, False]
    assert on_line.tolist() == [True, False, False, False]
