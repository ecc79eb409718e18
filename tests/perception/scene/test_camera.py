import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perception.scene.camera import NEAR_M, Camera, clip_near

cameras = st.builds(
    Camera,
    width=st.integers(64, 640),
    height=st.integers(64, 480),
    focal_px=st.floats(100, 800),
    mount_height_m=st.floats(0.8, 3.0),
    pitch_rad=st.floats(-0.1, 0.2),
)


@given(cameras)
@settings(max_examples=60, deadline=None)
def test_ground_rows_invert_the_projection(camera: Camera) -> None:
    first, depth, forward = camera.ground_rows()
    points = np.stack([np.zeros_like(forward), np.zeros_like(forward), forward], axis=-1)
    inner = camera.to_camera(points)
    np.testing.assert_allclose(inner[:, 2], depth, rtol=1e-6)
    rows = camera.to_pixels(inner)[:, 1]
    np.testing.assert_allclose(rows, np.arange(first, camera.height), atol=1e-4)
    assert first == camera.height or first >= camera.horizon_px


@given(cameras, st.floats(1, 200), st.floats(-20, 20))
@settings(max_examples=60, deadline=None)
def test_a_point_at_eye_height_lies_on_the_horizon(camera: Camera, z: float, x: float) -> None:
    inner = camera.to_camera(np.array([[x, camera.mount_height_m, z]]))
    assert abs(camera.to_pixels(inner)[0, 1] - camera.horizon_px) < 1e-6 * camera.focal_px


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_clipping_keeps_what_is_in_front_and_adds_only_points_on_the_plane(
    offsets: list[tuple[float, float]],
) -> None:
    polygon = np.array([[0.0, x, z] for x, z in offsets])
    clipped = clip_near(polygon)
    assert (clipped[:, 2] >= NEAR_M - 1e-9).all()
    known = [tuple(point) for point in polygon]
    for point in clipped:
        assert tuple(point) in known or abs(point[2] - NEAR_M) < 1e-9
    assert len(clipped) >= (polygon[:, 2] >= NEAR_M).sum()
