"""Draws what a picture shows: camera, road, traffic, people and houses."""

import numpy as np

from perception.scene.camera import Camera
from perception.scene.lighting import sample_lighting
from perception.scene.pedestrians import Pedestrian, sample_pedestrian
from perception.scene.render import Layout
from perception.scene.road import Road, sample_road
from perception.scene.scenery import (
    Building,
    Pole,
    Tree,
    sample_building,
    sample_tree,
)
from perception.scene.solid import Pose
from perception.scene.vehicles import Vehicle, sample_vehicle

MAX_VEHICLES = 8
FARTHEST_VEHICLE_M = 62.0
FARTHEST_PEDESTRIAN_M = 30.0
_SIGNS = ((50, 50, 200), (190, 110, 40), (60, 200, 230), None)


def sample_layout(rng: np.random.Generator, height: int, width: int) -> Layout:
    """Draws a layout for a picture of `height` x `width` pixels."""
    camera = sample_camera(rng, height, width)
    road = sample_road(rng)
    traffic = _sample_traffic(rng, road)
    users: tuple[Vehicle | Pedestrian, ...] = (*traffic, *_sample_people(rng, road, traffic))
    return Layout(
        camera=camera,
        road=road,
        lighting=sample_lighting(rng),
        users=users,
        buildings=tuple(_sample_buildings(rng, road)),
        plants=tuple(_sample_plants(rng, road)),
        sky_variant=int(rng.integers(1000)),
        noise_seed=int(rng.integers(1 << 31)),
    )


def sample_camera(rng: np.random.Generator, height: int, width: int) -> Camera:
    """Draws a camera 1.3 to 1.8 m above the ground, 0 to 5 degrees downwards."""
    return Camera(
        width=width,
        height=height,
        focal_px=width * float(rng.uniform(0.82, 1.0)),
        mount_height_m=float(rng.uniform(1.3, 1.8)),
        pitch_rad=float(rng.uniform(0.0, 0.09)),
    )


def _sample_traffic(rng: np.random.Generator, road: Road) -> list[Vehicle]:
    vehicles: list[Vehicle] = []
    for lane in rng.permutation(road.lanes):
        lateral = road.lane_centre_m(int(lane))
        is_ego_lane = abs(lateral - road.ego_lateral_m) < road.lane_width_m / 2
        z = rng.uniform(9, 26) if is_ego_lane else rng.uniform(5, 24)
        while z < FARTHEST_VEHICLE_M and len(vehicles) < MAX_VEHICLES:
            is_truck = bool(rng.random() < 0.35)
            middle = z + (4.5 if is_truck else 2.3)
            yaw = road.yaw(middle) + (np.pi if lane < road.oncoming else 0.0)
            turn = rng.normal(0, 0.04) if rng.random() < 0.9 else rng.uniform(-0.6, 0.6)
            x = road.to_x(lateral + rng.normal(0, 0.2), middle)
            vehicles.append(sample_vehicle(rng, Pose(x, middle, yaw + turn), is_truck))
            z += (11 if is_truck else 6) + rng.uniform(3, 35)
    return vehicles


def _sample_people(
    rng: np.random.Generator, road: Road, traffic: list[Vehicle]
) -> list[Pedestrian]:
    people = []
    for _ in range(int(rng.integers(0, 8))):
        z = float(5 + (FARTHEST_PEDESTRIAN_M - 5) * rng.random() ** 1.3)
        side = rng.choice([-1, 1])
        if rng.random() < 0.75:
            lateral = side * (road.half_width_m + rng.uniform(0.4, road.sidewalk_m - 0.3))
        else:
            lateral = side * rng.uniform(0, road.half_width_m)
        person = sample_pedestrian(rng, road.to_x(float(lateral), z), z)
        if not any(_touches(vehicle, person) for vehicle in traffic):
            people.append(person)
    return people


def _touches(vehicle: Vehicle, person: Pedestrian) -> bool:
    sideways = abs(person.x - vehicle.pose.x) < vehicle.width / 2 + 0.4
    return sideways and abs(person.z - vehicle.pose.z) < vehicle.length / 2 + 0.4


def _sample_buildings(rng: np.random.Generator, road: Road) -> list[Building]:
    houses = []
    for side in (-1, 1):
        density = rng.choice([0.15, 0.6, 0.95])
        z = rng.uniform(-8, 8)
        while z < 110:
            length, width = rng.uniform(8, 22), rng.uniform(8, 14)
            if rng.random() < density:
                gap = road.half_width_m + road.sidewalk_m + rng.uniform(0.8, 4) + width / 2
                middle = z + length / 2
                pose = Pose(road.to_x(side * gap, middle), middle, road.yaw(middle))
                houses.append(sample_building(rng, pose, length, width))
            z += length + rng.uniform(0.5, 10)
    return houses


def _sample_plants(rng: np.random.Generator, road: Road) -> list[Tree | Pole]:
    plants: list[Tree | Pole] = []
    for side in (-1, 1):
        if rng.random() < 0.6:
            lateral = side * (road.half_width_m + road.sidewalk_m + rng.uniform(0.2, 1.0))
            step = rng.uniform(8, 20)
            for z in np.arange(rng.uniform(6, 16), 90, step):
                plants.append(sample_tree(rng, road.to_x(lateral, z), float(z)))
        if rng.random() < 0.5:
            lateral = side * (road.half_width_m + 0.5)
            sign = _SIGNS[rng.integers(len(_SIGNS))]
            for z in np.arange(rng.uniform(8, 25), 80, rng.uniform(18, 35)):
                pole_height = 2.6 if sign else 6.5
                plants.append(
                    Pole(x=road.to_x(lateral, z), z=float(z), height=pole_height, sign=sign)
                )
    return plants
