"""Prediction follows circles, tends to straight lines, and its doubt is honest and grows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError
from perception.frame.predict import PredictionSettings, advance, predict_tracks
from perception.frame.track import Tracks

SPEEDS = st.floats(0.0, 30)
ANGLES = st.floats(-np.pi, np.pi)
YAW_RATES = st.floats(-0.8, 0.8)
TIMES_S = np.linspace(0.1, 3.0, 30)


def tracks_of(speed, heading, yaw_rate, velocity_sigma=0.3, position_sigma=(0.2, 0.4)):
    speed, heading, yaw_rate = (np.atleast_1d(v).astype(float) for v in (speed, heading, yaw_rate))
    count = len(speed)
    return Tracks(
        ids=np.arange(count), labels=np.zeros(count, np.int64), scores=np.ones(count),
        boxes=np.zeros((count, 4)), positions=np.tile([2.0, 20.0], (count, 1)),
        velocities=np.stack([speed * np.sin(heading), speed * np.cos(heading)], axis=1),
        headings=heading, yaw_rates=yaw_rate,
        position_sigmas=np.tile(position_sigma, (count, 1)),
        velocity_sigmas=np.full(count, velocity_sigma), misses=np.zeros(count, np.int64),
    )  # fmt: skip


def move(speed, heading, yaw_rate):
    return advance(np.asarray([speed]), np.asarray([heading]), np.asarray([yaw_rate]), TIMES_S)[0]


@settings(max_examples=60, deadline=None)
@given(speed=st.floats(1, 30), heading=ANGLES, yaw_rate=st.floats(0.02, 0.8), left=st.booleans())
def test_places_lie_on_the_circle(speed, heading, yaw_rate, left):
    yaw_rate = -yaw_rate if left else yaw_rate
    radius = speed / yaw_rate
    centre = radius * np.asarray([np.cos(heading), -np.sin(heading)])
    distances = np.linalg.norm(move(speed, heading, yaw_rate) - centre, axis=1)
    np.testing.assert_allclose(distances, abs(radius), rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(speed=SPEEDS, heading=ANGLES, yaw_rate=st.floats(-1e-7, 1e-7))
def test_no_turn_is_a_straight_line(speed, heading, yaw_rate):
    direction = np.asarray([np.sin(heading), np.cos(heading)])
    expected = speed * TIMES_S[:, None] * direction
    np.testing.assert_allclose(move(speed, heading, yaw_rate), expected, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(speed=SPEEDS, heading=ANGLES, yaw_rate=YAW_RATES, angle=ANGLES)
def test_turning_the_world_turns_the_prediction(speed, heading, yaw_rate, angle):
    c, s = np.cos(angle), np.sin(angle)
    turned = move(speed, heading, yaw_rate) @ np.asarray([[c, -s], [s, c]])
    np.testing.assert_allclose(move(speed, heading + angle, yaw_rate), turned, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(speed=SPEEDS, heading=ANGLES, yaw_rate=YAW_RATES)
def test_equals_small_steps(speed, heading, yaw_rate):
    dt = 1e-3
    place, course = np.zeros(2), heading
    for _ in range(3000):
        middle = course + yaw_rate * dt / 2
        place = place + speed * dt * np.asarray([np.sin(middle), np.cos(middle)])
        course += yaw_rate * dt
    np.testing.assert_allclose(move(speed, heading, yaw_rate)[-1], place, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(speed=SPEEDS, heading=ANGLES, yaw_rate=YAW_RATES)
def test_doubt_grows_and_is_a_covariance(speed, heading, yaw_rate):
    covariances = predict_tracks(tracks_of(speed, heading, yaw_rate)).covariances[0]
    traces = covariances.trace(axis1=1, axis2=2)
    assert (np.diff(traces) >= 0).all()
    np.testing.assert_allclose(covariances, covariances.transpose(0, 2, 1))
    assert (np.linalg.eigvalsh(covariances) > 0).all()


@pytest.mark.parametrize("yaw_rate", [0.0, 0.3, -0.5])
def test_covariance_matches_a_simulation(yaw_rate):
    rng = np.random.default_rng(0)
    doubt = PredictionSettings(acceleration_sigma=0.0)
    tracks = tracks_of(10.0, 0.4, yaw_rate)
    count = 40000
    moves = advance(
        10.0 + rng.normal(0, 0.3, count),
        0.4 + rng.normal(0, doubt.heading_sigma, count),
        yaw_rate + rng.normal(0, doubt.yaw_rate_sigma, count),
        np.asarray([1.0, 2.0]),
    )
    moves += rng.normal(0, 1, (count, 1, 2)) * [0.2, 0.4]
    got = predict_tracks(tracks, doubt).covariances[0]
    for sample, index in ((0, 4), (1, 9)):
        expected = np.cov(moves[:, sample].T)
        np.testing.assert_allclose(got[index], expected, atol=0.06 * np.trace(expected))


def test_slow_objects_go_straight_and_heading_turns_with_the_rate():
    slow = predict_tracks(tracks_of(0.5, 0.0, 0.8))
    np.testing.assert_allclose(slow.positions[0, :, 0], 2.0)
    fast = predict_tracks(tracks_of(5.0, 0.1, 0.2))
    np.testing.assert_allclose(fast.headings[0], 0.1 + 0.2 * fast.times_s)


def test_no_tracks_give_empty_arrays_of_the_right_shape():
    empty = predict_tracks(tracks_of([], [], []))
    assert empty.positions.shape == (0, 15, 2)
    assert empty.covariances.shape == (0, 15, 2, 2)


def test_settings_are_checked():
    with pytest.raises(InputError, match="step_s"):
        PredictionSettings(step_s=0.0)
