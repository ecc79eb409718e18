"""The labels of a scene agree with its geometry and with one another."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perception.scene.dataset import SceneDataset
from perception.scene.layout import sample_layout
from perception.scene.pedestrians import Pedestrian, sample_pedestrian
from perception.scene.render import MIN_LONG_SIDE_PX, MIN_SHORT_SIDE_PX, Layout, render
from perception.scene.sample import BOX_CLASSES, MASK_CLASSES, Scene
from perception.scene.solid import Pose
from perception.scene.vehicles import Vehicle, sample_vehicle

VEHICLE, PEDESTRIAN = MASK_CLASSES.index("vehicle"), MASK_CLASSES.index("pedestrian")
GROUND = [MASK_CLASSES.index(name) for name in ("sidewalk", "drivable", "lane")]


def make_layout(*users: Vehicle | Pedestrian, seed: int = 3) -> Layout:
    layout = sample_layout(np.random.default_rng(seed), 288, 512)
    return replace(layout, users=users, buildings=(), plants=())


def make_vehicle(z: float, *, x: float = 0.0, yaw: float = 0.0, is_truck: bool = False) -> Vehicle:
    return sample_vehicle(np.random.default_rng(1), Pose(x, z, yaw), is_truck)


def bounds(mask: np.ndarray) -> list[int]:
    rows, columns = np.nonzero(mask)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


@pytest.fixture(scope="module")
def scenes() -> list[tuple[Layout, Scene]]:
    rendered = []
    for index in range(25):
        layout = sample_layout(np.random.default_rng([9, index]), 288, 512)
        rendered.append((layout, render(layout)))
    return rendered


@given(st.floats(8, 25), st.floats(-3, 3), st.floats(-3.1, 3.1), st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_lone_vehicles_box_is_the_bound_of_its_mask(
    z: float, x: float, yaw: float, is_truck: bool
) -> None:
    scene = render(make_layout(make_vehicle(z, x=x, yaw=yaw, is_truck=is_truck)))
    assert scene.boxes.tolist() == [bounds(scene.mask == VEHICLE)]
    assert BOX_CLASSES[scene.labels[0]] == ("truck" if is_truck else "car")


def test_a_lone_pedestrians_box_is_the_bound_of_its_mask() -> None:
    person = sample_pedestrian(np.random.default_rng(0), 1.0, 9.0)
    scene = render(make_layout(person))
    assert scene.boxes.tolist() == [bounds(scene.mask == PEDESTRIAN)]
    camera = make_layout().camera
    height_px = scene.boxes[0, 3] - scene.boxes[0, 1]
    assert height_px == pytest.approx(camera.focal_px * person.height / 9.0, rel=0.1)


def test_each_box_encloses_pixels_of_its_class(scenes: list[tuple[Layout, Scene]]) -> None:
    for _, scene in scenes:
        for box, label in zip(scene.boxes.astype(int), scene.labels, strict=True):
            x1, y1, x2, y2 = box
            wanted = PEDESTRIAN if BOX_CLASSES[label] == "pedestrian" else VEHICLE
            inside = scene.mask[y1:y2, x1:x2] == wanted
            assert inside.any(axis=1)[[0, -1]].all()
            assert inside.any(axis=0)[[0, -1]].all()


def test_boxes_are_inside_the_picture_and_not_tiny(scenes: list[tuple[Layout, Scene]]) -> None:
    for _, scene in scenes:
        assert (scene.boxes >= 0).all()
        assert (scene.boxes <= np.array([512, 288, 512, 288])).all()
        sides = np.sort(scene.boxes[:, 2:] - scene.boxes[:, :2], axis=1)
        assert (sides[:, 0] >= MIN_SHORT_SIDE_PX).all()
        assert (sides[:, 1] >= MIN_LONG_SIDE_PX).all()


def test_ground_has_the_depth_of_the_ray_and_plane_formula(
    scenes: list[tuple[Layout, Scene]],
) -> None:
    for layout, scene in scenes:
        camera = layout.camera
        slope = (np.arange(288) - (288 - 1) / 2) / camera.focal_px
        down = np.sin(camera.pitch_rad) + np.cos(camera.pitch_rad) * slope
        plane = np.broadcast_to((camera.mount_height_m / down)[:, None], scene.depth.shape)
        on_ground = np.isin(scene.mask, GROUND)
        np.testing.assert_allclose(scene.depth[on_ground], plane[on_ground], rtol=1e-4)


def test_road_users_are_nearer_than_the_ground_or_sky_behind_them(
    scenes: list[tuple[Layout, Scene]],
) -> None:
    for layout, scene in scenes:
        empty = render(replace(layout, users=(), buildings=(), plants=()))
        is_user = np.isin(scene.mask, (VEHICLE, PEDESTRIAN))
        nearer = scene.depth[is_user] <= empty.depth[is_user] * 1.03 + 0.3
        assert nearer.mean() > 0.995
        assert np.isfinite(scene.depth[is_user]).all()


def test_what_has_no_depth_is_background(scenes: list[tuple[Layout, Scene]]) -> None:
    for _, scene in scenes:
        assert (scene.depth > 0).all()
        assert (scene.mask[np.isinf(scene.depth)] == MASK_CLASSES.index("background")).all()


def test_a_cars_rear_has_the_depth_of_its_rear() -> None:
    car = make_vehicle(12.0)
    scene = render(make_layout(car))
    x1, y1, x2, y2 = scene.boxes[0].astype(int)
    lower = scene.depth[y1 + (y2 - y1) * 2 // 3, (x1 + x2) // 2]
    assert lower == pytest.approx(12.0 - car.length / 2, abs=0.5)


def test_a_hidden_car_has_no_box_and_a_far_one_neither() -> None:
    truck, hidden = make_vehicle(14.0, is_truck=True), make_vehicle(30.0)
    assert len(render(make_layout(truck, hidden)).boxes) == 1
    assert len(render(make_layout(hidden)).boxes) == 1
    far = render(make_layout(make_vehicle(170.0)))
    assert len(far.boxes) == 0
    assert (far.mask == VEHICLE).any()


def test_the_order_of_the_road_users_does_not_change_the_picture() -> None:
    users = (make_vehicle(10.0), make_vehicle(20.0, x=2.0), make_vehicle(35.0, is_truck=True))
    one, other = render(make_layout(*users)), render(make_layout(*users[::-1]))
    np.testing.assert_array_equal(one.image, other.image)
    np.testing.assert_array_equal(one.mask, other.mask)
    np.testing.assert_array_equal(one.boxes, other.boxes[::-1])


def test_a_nearer_car_has_a_larger_box() -> None:
    areas = []
    for z in (10.0, 15.0, 25.0, 40.0):
        x1, y1, x2, y2 = render(make_layout(make_vehicle(z))).boxes[0]
        areas.append((x2 - x1) * (y2 - y1))
    assert areas == sorted(areas, reverse=True)


def test_every_class_occurs(scenes: list[tuple[Layout, Scene]]) -> None:
    labels = np.concatenate([scene.labels for _, scene in scenes])
    masks = np.concatenate([np.unique(scene.mask) for _, scene in scenes])
    assert set(labels) == set(range(len(BOX_CLASSES)))
    assert set(masks) == set(range(len(MASK_CLASSES)))


def test_lane_lines_stand_out_from_the_asphalt_at_day() -> None:
    lane, drivable = MASK_CLASSES.index("lane"), MASK_CLASSES.index("drivable")
    for scene in SceneDataset(8, 21):
        brightness = scene.image.max(axis=2)
        near = np.isfinite(scene.depth) & (scene.depth < 25)
        lines = brightness[near & (scene.mask == lane)]
        asphalt = brightness[near & (scene.mask == drivable)]
        assert np.median(lines) > 1.2 * np.median(asphalt)
