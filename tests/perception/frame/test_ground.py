"""Ground geometry agrees with the renderer's camera and its exact depth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perception.frame.ground import (
    default_camera,
    extents_of,
    locate_boxes,
    project_ground,
)

CAMERA = default_camera(288, 512)


@settings(max_examples=50, deadline=None)
@given(x=st.floats(-15, 15), z=st.floats(2, 80))
def test_projection_agrees_with_the_renderer(x, z):
    pixel = project_ground(np.asarray([x, z]), CAMERA)
    theirs = CAMERA.to_pixels(CAMERA.to_camera(np.asarray([x, 0.0, z])))
    np.testing.assert_allclose(pixel, theirs, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(x=st.floats(-10, 10), z=st.floats(4, 60))
def test_lower_edge_is_located_on_the_ground(x, z):
    u, v = project_ground(np.asarray([x, z]), CAMERA)
    box = np.asarray([[u - 10, v - 30, u + 10, v]])
    np.testing.assert_allclose(locate_boxes(box, CAMERA), [[x, z]], rtol=1e-6, atol=1e-6)


def test_depth_map_gives_the_distance():
    depth = np.full((72, 128), 50.0, np.float32)
    depth[30:50, 60:90] = 12.0
    box = np.asarray([[240, 120, 360, 200]], np.float32)
    x, z = locate_boxes(box, CAMERA, depth)[0]
    assert z == pytest.approx(12.0, rel=0.02)
    assert x == pytest.approx((300 - 255.5) / CAMERA.focal_px * 12, rel=0.01)


def test_boxes_above_the_horizon_and_outside_the_map_stay_finite():
    boxes = np.asarray([[0, 0, 10, 10], [500, 280, 512, 288], [5, 5, 5, 5]], np.float32)
    depth = np.full((72, 128), 200.0, np.float32)
    assert np.isfinite(locate_boxes(boxes, CAMERA)).all()
    assert np.isfinite(locate_boxes(boxes, CAMERA, depth)).all()


def test_points_behind_the_camera_have_no_pixel():
    assert np.isnan(project_ground(np.asarray([[0.0, -3.0]]), CAMERA)).all()


def test_unknown_classes_get_an_extent():
    assert extents_of(["pedestrian", "tram"]).shape == (2, 2)
    assert extents_of([]).shape == (0, 2)
