"""Plans the next seconds: samples paths and speed profiles and takes the cheapest safe one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from perception.frame.collision import FAR_CLEARANCE_M, Obstacles, measure_clearance
from perception.frame.corridor import Corridor
from perception.frame.ground import extents_of
from perception.frame.predict import Predictions
from perception.frame.track import Tracks
from perception.scene.camera import Camera

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PlannerSettings:
    """What the vehicle is, what it may do, and what it prefers.

    Attributes:
        offsets_m: sideways ends of the sampled paths, positive to the right.
        speed_factors: ends of the sampled speed profiles, as parts of the target speed; the
            present speed is always sampled too.
        target_speed_mps: speed the vehicle would like.
        disc_offsets_m: centres of the discs that cover the vehicle, ahead of the camera.
        disc_radius_m: their radius.
        half_width_m: half the vehicle's width between its wheels' outer edges.
        max_deceleration: hardest braking, m/s^2.
        max_lateral_acceleration: hardest steering, m/s^2.
        safe_clearance_m: gap to others at which their cost has fallen to 1/e.
        doubt_factor: standard deviations by which others are made larger.
        max_obstacles: most obstacles considered, the nearest ones; bounds the frame's work.
        collision_weight: cost of touching; likewise the other weights.
    """

    offsets_m: tuple[float, ...] = (-3.6, -2.7, -1.8, -0.9, -0.4, 0.0, 0.4, 0.9, 1.8, 2.7, 3.6)
    speed_factors: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    target_speed_mps: float = 14.0
    disc_offsets_m: tuple[float, ...] = (0.9, -0.4, -1.7)
    disc_radius_m: float = 1.15
    half_width_m: float = 0.95
    max_deceleration: float = 8.0
    max_lateral_acceleration: float = 3.0
    safe_clearance_m: float = 0.4
    doubt_factor: float = 0.5
    max_obstacles: int = 10
    collision_weight: float = 6.0
    departure_weight: float = 30.0
    line_weight: float = 1.5
    comfort_weight: float = 0.15
    progress_weight: float = 6.0
    offset_weight: float = 0.25
    change_weight: float = 0.15


@dataclass(frozen=True)
class Plan:
    """Where the vehicle should be.

    Attributes:
        times_s: [K] seconds from now.
        positions: [K, 2] x, z in metres of the camera's place on the ground.
        speeds: [K] m/s.
        is_feasible: false where no sampled trajectory is safe and the vehicle brakes hard.
        clearance_m: smallest gap to any predicted object, 50 where there is none.
        offset_m: sideways end of the chosen path.
    """

    times_s: Array
    positions: Array
    speeds: Array
    is_feasible: bool
    clearance_m: float
    offset_m: float


@dataclass(frozen=True)
class _Candidates:
    """M sampled trajectories at K times."""

    offsets: Array  # [M]
    travelled: Array  # [M, K] m
    speeds: Array  # [M, K] m/s
    reach_m: float  # length of the lateral move


class Planner:
    """Chooses a trajectory per frame; remembers its last choice so as not to waver.

    Args:
        times_s: [K] times of the plan, those of the predictions.
        box_classes: the detections' classes by index.
        mask_classes: the segmentation's classes by index.
        camera: the camera.
        settings: what the vehicle is, may do and prefers.
    """

    def __init__(
        self,
        times_s: Array,
        box_classes: Sequence[str],
        mask_classes: Sequence[str],
        camera: Camera,
        settings: PlannerSettings | None = None,
    ) -> None:
        self._settings = settings or PlannerSettings()
        self._times = times_s
        self._extents = extents_of(box_classes)
        self._corridor = Corridor(mask_classes, camera)
        self._last_offset = 0.0

    def plan(
        self,
        tracks: Tracks,
        predictions: Predictions,
        mask: NDArray[np.uint8] | None,
        ego_speed_mps: float,
    ) -> Plan:
        """Returns the cheapest safe trajectory, or braking straight on where none is safe.

        Args:
            tracks: the objects now.
            predictions: where they will be, at the planner's times.
            mask: [h, w] class indices of the whole picture; None without a segmentation head.
            ego_speed_mps: the vehicle's speed.

        Raises:
            InputError: the predictions are for other times.
        """
        if predictions.times_s.shape != self._times.shape:
            raise InputError(
                f"predictions for {len(predictions.times_s)} times", f"{len(self._times)} times"
            )
        settings = self._settings
        obstacles = Obstacles.from_tracks(
            tracks, predictions, self._extents, settings.doubt_factor
        ).take(settings.max_obstacles)
        candidates = self._sample(max(ego_speed_mps, 0.0))
        clearance = self._clearances(candidates, obstacles)
        cost, is_safe = self._judge(candidates, clearance, mask)
        if not is_safe.any():
            self._last_offset = 0.0
            return self._brake(max(ego_speed_mps, 0.0), obstacles)
        best = int(np.argmin(np.where(is_safe, cost, np.inf)))
        self._last_offset = float(candidates.offsets[best])
        aside = candidates.offsets[best] * _blend(candidates.travelled[best] / candidates.reach_m)
        return Plan(
            times_s=self._times,
            positions=np.stack([aside, candidates.travelled[best]], axis=1),
            speeds=candidates.speeds[best],
            is_feasible=True,
            clearance_m=float(clearance[best].min()),
            offset_m=self._last_offset,
        )

    def _sample(self, speed: float) -> _Candidates:
        """Crosses all sideways ends with all speed profiles (cubic in speed, flat at both ends)."""
        settings = self._settings
        horizon = self._times[-1]
        part = self._times / horizon
        ends = np.append(np.asarray(settings.speed_factors) * settings.target_speed_mps, speed)
        change = (ends - speed)[:, None]
        speeds = speed + change * (3 * part**2 - 2 * part**3)
        travelled = speed * self._times + change * horizon * (part**3 - part**4 / 2)
        offsets = np.asarray(settings.offsets_m)
        return _Candidates(
            offsets=np.repeat(offsets, len(ends)),
            travelled=np.tile(travelled, (len(offsets), 1)),
            speeds=np.tile(speeds, (len(offsets), 1)),
            reach_m=float(np.clip(2.5 * speed, 10.0, 45.0)),
        )

    def _clearances(self, candidates: _Candidates, obstacles: Obstacles) -> Array:
        """Returns [M, K] gaps between vehicle and obstacles."""
        if not len(obstacles.centres):
            return np.full(candidates.travelled.shape, FAR_CLEARANCE_M)
        ahead = np.asarray(self._settings.disc_offsets_m)[:, None]
        forward = candidates.travelled[:, None] + ahead
        aside = candidates.offsets[:, None, None] * _blend(forward / candidates.reach_m)
        discs = np.stack([aside, forward], axis=-1)
        return measure_clearance(discs, self._settings.disc_radius_m, obstacles)

    def _judge(
        self, candidates: _Candidates, clearance: Array, mask: NDArray[np.uint8] | None
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Returns the cost [M] of each candidate and whether it is safe [M]."""
        settings = self._settings
        closest = clearance.min(axis=1)
        off_road, off_road_near, on_line = self._departures(candidates, mask)
        discomfort, is_drivable = self._comfort(candidates)
        wanted = max(settings.target_speed_mps * self._times[-1], 1.0)
        cost = (
            settings.collision_weight * np.exp(-np.maximum(closest, 0) / settings.safe_clearance_m)
            + settings.departure_weight * off_road
            + settings.line_weight * on_line
            + settings.comfort_weight * discomfort
            + settings.progress_weight * np.abs(1 - candidates.travelled[:, -1] / wanted)
            + settings.offset_weight * np.abs(candidates.offsets)
            + settings.change_weight * np.abs(candidates.offsets - self._last_offset)
        )
        return cost, (closest > 0) & is_drivable & (off_road_near <= 0.5)

    def _departures(
        self, candidates: _Candidates, mask: NDArray[np.uint8] | None
    ) -> tuple[Array, Array, Array]:
        """Returns parts [M] of the path off the road (whole, first half) and on a line."""
        if mask is None:
            nowhere = np.zeros(len(candidates.offsets))
            return nowhere, nowhere, nowhere
        aside = candidates.offsets[:, None] * _blend(candidates.travelled / candidates.reach_m)
        half = self._settings.half_width_m
        wheels = np.stack([aside - half, aside + half], axis=-1)
        forward = np.broadcast_to(candidates.travelled[..., None], wheels.shape)
        is_off, is_on_line = self._corridor.measure(np.stack([wheels, forward], axis=-1), mask)
        near = is_off[:, : (len(self._times) + 1) // 2]
        return is_off.mean((1, 2)), near.mean((1, 2)), is_on_line.mean((1, 2))

    def _comfort(self, candidates: _Candidates) -> tuple[Array, NDArray[np.bool_]]:
        """Returns mean squared acceleration and jerk [M], and whether the vehicle can do it [M]."""
        step = float(self._times[1] - self._times[0])
        acceleration = np.diff(candidates.speeds, axis=1) / step
        jerk = np.diff(acceleration, axis=1) / step
        part = np.clip(candidates.travelled / candidates.reach_m, 0, 1)
        bend = 60 * part - 180 * part**2 + 120 * part**3
        sideways = candidates.speeds**2 * bend * candidates.offsets[:, None]
        sideways /= candidates.reach_m**2
        discomfort = (
            np.square(acceleration).mean(axis=1)
            + 0.1 * np.square(jerk).mean(axis=1)
            + np.square(sideways).mean(axis=1)
        )
        settings = self._settings
        is_drivable = (acceleration >= -settings.max_deceleration).all(axis=1)
        is_steerable = (np.abs(sideways) <= settings.max_lateral_acceleration).all(axis=1)
        return discomfort, np.logical_and(is_drivable, is_steerable)

    def _brake(self, speed: float, obstacles: Obstacles) -> Plan:
        """Brakes as hard as possible, straight on."""
        deceleration = self._settings.max_deceleration
        braking = np.minimum(self._times, speed / deceleration)
        travelled = speed * braking - deceleration * braking**2 / 2
        stop = _Candidates(np.zeros(1), travelled[None], speed - deceleration * braking[None], 10.0)
        return Plan(
            times_s=self._times,
            positions=np.stack([np.zeros_like(travelled), travelled], axis=1),
            speeds=stop.speeds[0],
            is_feasible=False,
            clearance_m=float(self._clearances(stop, obstacles).min()),
            offset_m=0.0,
        )


def _blend(part: Array) -> Array:
    """Returns the quintic from 0 to 1 whose first two derivatives vanish at both ends."""
    r = np.clip(part, 0, 1)
    return np.asarray(r**3 * (10 - 15 * r + 6 * r**2))
