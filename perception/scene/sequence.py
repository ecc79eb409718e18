"""A drive along an endless road: scenes with motion and lasting identities.

All motion is a closed formula of time, so frame i can be rendered without the frames before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import cos, floor, pi, sin

import numpy as np

from artifacts.errors import InputError
from perception.scene.camera import Camera
from perception.scene.layout import sample_camera
from perception.scene.lighting import sample_lighting
from perception.scene.pedestrians import Pedestrian, sample_pedestrian
from perception.scene.render import Layout, render
from perception.scene.road import Road, sample_road
from perception.scene.sample import Scene
from perception.scene.scenery import Building, Pole, Tree, sample_building, sample_tree
from perception.scene.solid import Pose
from perception.scene.vehicles import Vehicle, sample_vehicle

_RING_M = 150.0
_BEHIND_M = 15.0
_BLOCK_M = 24.0
_BLOCKS_AHEAD = 6
_BEND_M = 420.0
_NEAREST_M = -6.0
_FARTHEST_WALKER_M = 60.0


@dataclass(frozen=True)
class _Slot:
    """A place in the traffic that one road user after another takes.

    The distance ahead at time t is start + drift * t + swing * sin(rate * t), brought into
    [-_BEHIND_M, _RING_M - _BEHIND_M); each time it leaves that range, a new road user takes over.
    """

    lateral: float
    start: float
    drift: float
    swing: float
    rate: float
    is_oncoming: bool
    is_person: bool

    def at(self, time_s: float) -> tuple[float, int]:
        """Distance ahead in metres, and how many road users had the slot before."""
        free = self.start + self.drift * time_s + self.swing * sin(self.rate * time_s)
        lap = floor((free + _BEHIND_M) / _RING_M)
        return free - lap * _RING_M, lap


class SceneSequence:
    """The pictures of a camera on a moving vehicle; iterating never ends.

    Scenes carry `ids`: a road user keeps its number as long as it is around, and no number is
    given twice.

    Args:
        seed: chooses road, weather and traffic.
        height: picture height in pixels, at least 64.
        width: picture width in pixels, at least 64.
        rate_hz: pictures per second, above 0.

    Attributes:
        camera: the camera at rest; while driving it nods by up to 0.1 degrees.

    Raises:
        InputError: an argument is out of range.
    """

    def __init__(
        self, seed: int, height: int = 720, width: int = 1280, rate_hz: float = 30.0
    ) -> None:
        if seed < 0:
            raise InputError(f"seed {seed}", "at least 0")
        if height < 64 or width < 64:
            raise InputError(f"scene size {height}x{width}", "at least 64x64 pixels")
        if not rate_hz > 0:
            raise InputError(f"rate {rate_hz} Hz", "above 0")
        rng = np.random.default_rng([seed, 0])
        self.seed = seed
        self.rate_hz = rate_hz
        self.camera: Camera = sample_camera(rng, height, width)
        self._road = sample_road(rng)
        self._lighting = sample_lighting(rng)
        self._speed_m_s = float(rng.uniform(8, 14))
        self._bend = float(rng.uniform(0.0015, 0.003))
        self._slots = _draw_slots(rng, self._road, self._speed_m_s)
        self._density = float(rng.choice([0.3, 0.7, 0.95]))

    def __iter__(self) -> Iterator[Scene]:
        """Renders one frame after another, from frame 0 on, without end."""
        index = 0
        while True:
            yield self.frame(index)
            index += 1

    def frame(self, index: int) -> Scene:
        """Renders frame `index` >= 0, taken at index / rate_hz seconds."""
        return render(self.layout(index))

    def layout(self, index: int) -> Layout:
        """What frame `index` shows."""
        time_s = index / self.rate_hz
        travelled = self._speed_m_s * time_s + 2.5 * sin(0.4 * time_s)
        phase = 2 * pi * travelled / _BEND_M + self.seed
        road = replace(
            self._road,
            travelled_m=travelled,
            curvature_per_m=self._bend * sin(phase),
            heading_rad=0.012 * sin(0.5 * time_s),
            ego_lateral_m=self._road.ego_lateral_m + 0.2 * sin(0.3 * time_s),
        )
        direction = self._bend * _BEND_M / (2 * pi) * (1 - cos(phase)) - road.heading_rad
        nod = 0.0015 * sin(7.0 * time_s)
        users, ids = self._place_users(road, time_s)
        return Layout(
            camera=replace(self.camera, pitch_rad=self.camera.pitch_rad + nod),
            road=road,
            lighting=self._lighting,
            users=users,
            ids=ids,
            buildings=self._place_buildings(road),
            plants=self._place_plants(road),
            sky_variant=self.seed,
            sky_shift_px=-self.camera.focal_px * direction,
            noise_seed=index,
        )

    def _place_users(
        self, road: Road, time_s: float
    ) -> tuple[tuple[Vehicle | Pedestrian, ...], tuple[int, ...]]:
        users: list[Vehicle | Pedestrian] = []
        ids = []
        for number, slot in enumerate(self._slots):
            z, lap = slot.at(time_s)
            if z < _NEAREST_M or (slot.is_person and not 1.5 < z < _FARTHEST_WALKER_M):
                continue
            x, yaw = road.to_x(slot.lateral, z), road.yaw(z)
            if slot.is_person:
                person = _person(self.seed, number, lap)
                swing = sin(2 * pi * 0.9 * time_s + number)
                users.append(replace(person, x=x, z=z, stride=swing))
            else:
                pose = Pose(x, z, yaw + (pi if slot.is_oncoming else 0.0))
                users.append(replace(_vehicle(self.seed, number, lap), pose=pose))
            ids.append(_unsigned(lap) * len(self._slots) + number)
        return tuple(users), tuple(ids)

    def _place_buildings(self, road: Road) -> tuple[Building, ...]:
        placed = []
        for side, block in _blocks(road):
            house, setback = _house(self.seed, side, block)
            is_built = _chance(self.seed, side, block) < self._density
            z = (block + 0.5) * _BLOCK_M - road.travelled_m
            lateral = side * (road.half_width_m + road.sidewalk_m + setback + house.width / 2)
            if is_built:
                pose = Pose(road.to_x(lateral, z), z, road.yaw(z))
                placed.append(replace(house, pose=pose))
        return tuple(placed)

    def _place_plants(self, road: Road) -> tuple[Tree | Pole, ...]:
        plants: list[Tree | Pole] = []
        edge = road.half_width_m
        for side, block in _blocks(road):
            z = (block + 0.9) * _BLOCK_M - road.travelled_m
            if z > 3:
                x = road.to_x(side * (edge + road.sidewalk_m + 0.6), z)
                plants.append(replace(_tree(self.seed, side, block), x=x, z=z))
            if z - 8 > 3 and block % 2 == 0:
                x = road.to_x(side * (edge + 0.5), z - 8)
                plants.append(Pole(x=x, z=z - 8, height=6.5, sign=None))
        return tuple(plants)


def _draw_slots(rng: np.random.Generator, road: Road, speed_m_s: float) -> tuple[_Slot, ...]:
    slots = []
    for lane in range(road.lanes):
        lateral = road.lane_centre_m(lane)
        is_ego_lane = abs(lateral - road.ego_lateral_m) < road.lane_width_m / 2
        is_oncoming = lane < road.oncoming
        if is_oncoming:
            drift = -speed_m_s - rng.uniform(8, 13)
        else:
            drift = 0.0 if is_ego_lane else rng.choice([-1, 1]) * rng.uniform(1.0, 3.5)
        count = 3 if is_ego_lane else int(rng.integers(3, 6))
        rate = rng.uniform(0.15, 0.3)
        first = rng.uniform(19, 26) if is_ego_lane else rng.uniform(0, 40)
        for i in range(count):
            spacing = 34.0 if is_ego_lane else _RING_M / count
            start = first + spacing * i + rng.uniform(-4, 4)
            swing = 5.0 if is_ego_lane else 2.0
            slots.append(_Slot(lateral, start, drift, swing, rate, is_oncoming, False))
    for _ in range(int(rng.integers(8, 14))):
        side = rng.choice([-1, 1])
        lateral = side * (road.half_width_m + rng.uniform(0.5, road.sidewalk_m - 0.3))
        walk = rng.choice([-1, 1]) * rng.uniform(0.9, 1.6)
        start = rng.uniform(0, _RING_M)
        slots.append(_Slot(lateral, start, walk - speed_m_s, 0.0, 0.0, False, True))
    return tuple(slots)


def _blocks(road: Road) -> Iterator[tuple[int, int]]:
    """Side (-1 left, 1 right) and number of each stretch of roadside in view."""
    first = floor(road.travelled_m / _BLOCK_M) - 1
    return ((side, first + i) for side in (-1, 1) for i in range(_BLOCKS_AHEAD))


def _unsigned(number: int) -> int:
    """Maps 0, -1, 1, -2, 2 ... to 0, 1, 2, 3, 4 ..."""
    return 2 * number if number >= 0 else -2 * number - 1


def _stream(*key: int) -> np.random.Generator:
    return np.random.default_rng([_unsigned(part) for part in key])


@lru_cache(maxsize=1024)
def _vehicle(seed: int, number: int, lap: int) -> Vehicle:
    rng = _stream(seed, 1, number, lap)
    return sample_vehicle(rng, Pose(0.0, 0.0, 0.0), bool(rng.random() < 0.3))


@lru_cache(maxsize=1024)
def _person(seed: int, number: int, lap: int) -> Pedestrian:
    return replace(sample_pedestrian(_stream(seed, 2, number, lap), 0.0, 1.0), sway=0.6)


@lru_cache(maxsize=1024)
def _house(seed: int, side: int, block: int) -> tuple[Building, float]:
    rng = _stream(seed, 3, side, block)
    length, width = float(rng.uniform(10, _BLOCK_M - 2)), float(rng.uniform(8, 14))
    house = sample_building(rng, Pose(0.0, 0.0, 0.0), length, width)
    return house, float(rng.uniform(1.5, 4.0))


@lru_cache(maxsize=1024)
def _tree(seed: int, side: int, block: int) -> Tree:
    return sample_tree(_stream(seed, 4, side, block), 0.0, 1.0)


@lru_cache(maxsize=1024)
def _chance(seed: int, side: int, block: int) -> float:
    return float(_stream(seed, 5, side, block).random())
