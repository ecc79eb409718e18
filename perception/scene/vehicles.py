"""Cars and trucks: frustums with windows, wheels and lights."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perception.scene.canvas import Canvas, Colour
from perception.scene.lighting import Lighting
from perception.scene.solid import Face, Pose, Rectangle, paint_solid

_CIRCLE = np.stack([np.cos(np.arange(14) * np.pi / 7), np.sin(np.arange(14) * np.pi / 7)], axis=-1)
_CAR_COLOURS = (
    (40, 40, 190), (170, 80, 30), (225, 225, 225), (35, 35, 35), (150, 150, 150),
    (60, 140, 60), (30, 150, 220), (120, 60, 110), (190, 170, 120),
)  # fmt: skip
_CARGO_COLOURS = (
    (220, 220, 220), (190, 150, 60), (60, 150, 200), (90, 90, 170), (120, 160, 90), (200, 200, 160),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Vehicle:
    """A car or a truck standing on the ground.

    Attributes:
        pose: where its middle is.
        is_truck: a truck, otherwise a car.
        length: metres.
        width: metres.
        height: metres.
        colours: BGR of the body, and of the cargo box of a truck.
        brakes: the rear lights are bright.
    """

    pose: Pose
    is_truck: bool
    length: float
    width: float
    height: float
    colours: tuple[Colour, Colour]
    brakes: bool = False


def sample_vehicle(rng: np.random.Generator, pose: Pose, is_truck: bool) -> Vehicle:
    """Draws the size and the colours of a vehicle at `pose`."""
    body = np.array(_CAR_COLOURS[rng.integers(len(_CAR_COLOURS))]) * rng.uniform(0.8, 1.1)
    cargo = np.array(_CARGO_COLOURS[rng.integers(len(_CARGO_COLOURS))]) * rng.uniform(0.85, 1.1)
    if is_truck:
        size = (rng.uniform(6.5, 10.0), rng.uniform(2.35, 2.55), rng.uniform(3.0, 3.7))
    else:
        size = (rng.uniform(3.8, 4.8), rng.uniform(1.7, 1.9), rng.uniform(1.42, 1.75))
    return Vehicle(
        pose=pose,
        is_truck=is_truck,
        length=size[0],
        width=size[1],
        height=size[2],
        colours=(tuple(np.minimum(body, 255)), tuple(np.minimum(cargo, 255))),
        brakes=bool(rng.random() < 0.3),
    )


def paint_vehicle(canvas: Canvas, lighting: Lighting, vehicle: Vehicle, instance: int) -> None:
    """Paints a vehicle; what lies behind it must have been painted before."""
    if vehicle.is_truck:
        _paint_truck(canvas, lighting, vehicle, instance)
    else:
        _paint_car(canvas, lighting, vehicle, instance)


def light_positions(vehicle: Vehicle) -> tuple[NDArray, bool]:
    """The two lights that the camera sees: [2, 3] in the vehicle frame, and whether rear ones."""
    sees_rear = np.cos(vehicle.pose.yaw) > 0
    end = (-1 if sees_rear else 1) * vehicle.length / 2
    half = vehicle.width * 0.38
    up = 0.95 if vehicle.is_truck else 0.72
    return vehicle.pose.place(np.array([[-half, up, end], [half, up, end]])), bool(sees_rear)


def _paint_car(canvas: Canvas, lighting: Lighting, car: Vehicle, instance: int) -> None:
    half, waist = car.length / 2, 0.58 * car.height
    body = (
        Rectangle(car.width, half, -half, 0.22),
        Rectangle(car.width * 0.96, half * 0.97, -half * 0.98, waist),
    )
    faces = paint_solid(canvas, lighting, car.pose, body, car.colours[0], instance)
    _paint_wheels(canvas, faces, 0.22, waist - 0.22, car.length, 0.33, instance)
    _paint_lights(canvas, faces, car)
    cabin = (
        Rectangle(car.width * 0.94, half * 0.45, -half * 0.85, waist),
        Rectangle(car.width * 0.76, half * 0.12, -half * 0.62, car.height),
    )
    glass = lighting.shade((70, 58, 48), np.array([0.0, 1.0, 0.0]))
    for face in paint_solid(canvas, lighting, car.pose, cabin, car.colours[0], instance):
        if face.name in ("left", "right"):
            panes = [face.patch(0.06, 0.48, 0.08, 0.85), face.patch(0.54, 0.94, 0.08, 0.85)]
            canvas.decorate(np.stack(panes), glass)
        elif face.name != "top":
            canvas.decorate(face.patch(0.07, 0.93, 0.1, 0.88)[None], glass)


def _paint_truck(canvas: Canvas, lighting: Lighting, truck: Vehicle, instance: int) -> None:
    half = truck.length / 2
    split = half - 2.1
    cab = (
        Rectangle(truck.width * 0.95, half, split, 0.5),
        Rectangle(truck.width * 0.92, half - 0.25, split, truck.height * 0.78),
    )
    cargo = (
        Rectangle(truck.width, split - 0.15, -half, 0.75),
        Rectangle(truck.width, split - 0.15, -half, truck.height),
    )
    frame = (
        Rectangle(truck.width * 0.7, half - 0.3, -half + 0.2, 0.35),
        Rectangle(truck.width * 0.7, half - 0.3, -half + 0.2, 0.8),
    )
    paint_solid(canvas, lighting, truck.pose, frame, (40, 40, 40), instance)
    parts = [(cab, truck.colours[0], True), (cargo, truck.colours[1], False)]
    nearer_rear = np.cos(truck.pose.yaw) * truck.pose.z + np.sin(truck.pose.yaw) * truck.pose.x > 0
    for shape, colour, is_cab in parts if nearer_rear else parts[::-1]:
        faces = paint_solid(canvas, lighting, truck.pose, shape, colour, instance)
        length = shape[0].front - shape[0].rear
        _paint_wheels(canvas, faces, shape[0].up, shape[1].up - shape[0].up, length, 0.5, instance)
        if is_cab:
            _paint_cab_windows(canvas, lighting, faces)
        else:
            _paint_cargo_marks(canvas, lighting, faces, colour)
        _paint_lights(
            canvas, [f for f in faces if f.name == ("front" if is_cab else "rear")], truck
        )


def _paint_cab_windows(canvas: Canvas, lighting: Lighting, faces: list[Face]) -> None:
    glass = lighting.shade((70, 58, 48), np.array([0.0, 1.0, 0.0]))
    for face in faces:
        if face.name == "front":
            canvas.decorate(face.patch(0.06, 0.94, 0.5, 0.88)[None], glass)
        elif face.name in ("left", "right"):
            span = (0.45, 0.92) if face.name == "right" else (0.08, 0.55)
            canvas.decorate(face.patch(*span, 0.52, 0.88)[None], glass)


def _paint_cargo_marks(
    canvas: Canvas, lighting: Lighting, faces: list[Face], colour: Colour
) -> None:
    dark = lighting.shade([c * 0.6 for c in colour], np.array([0.0, 1.0, 0.0]))
    for face in faces:
        if face.name == "rear":
            canvas.decorate(face.patch(0.485, 0.515, 0.03, 0.97)[None], dark)
            canvas.decorate(face.patch(0.0, 1.0, 0.0, 0.06)[None], dark)
        elif face.name in ("left", "right"):
            canvas.decorate(face.patch(0.0, 1.0, 0.18, 0.26)[None], dark)


def _paint_wheels(
    canvas: Canvas,
    faces: list[Face],
    bottom: float,
    height: float,
    length: float,
    radius: float,
    instance: int,
) -> None:
    """Paints tyres into the planes of the faces, from the ground up."""
    for face in faces:
        if face.name in ("left", "right"):
            for along in (0.2, 0.8) if length > 3 else (0.5,):
                centre = np.array([along, (radius - bottom) / height])
                size = np.array([radius / length, radius / height])
                canvas.fill_face(face.points(centre + _CIRCLE * size), (28, 28, 28), instance)
                canvas.decorate(face.points(centre + _CIRCLE * size * 0.5)[None], (120, 120, 120))
        elif face.name in ("front", "rear"):
            for left in (0.03, 0.8):
                tyre = face.patch(left, left + 0.17, -bottom / height, 0.02)
                canvas.fill_face(tyre, (28, 28, 28), instance)


def _paint_lights(canvas: Canvas, faces: list[Face], vehicle: Vehicle) -> None:
    for face in faces:
        if face.name not in ("front", "rear"):
            continue
        rear = (60, 50, 255) if vehicle.brakes else (35, 30, 190)
        colour = rear if face.name == "rear" else (210, 240, 245)
        low, high = (0.03, 0.13) if vehicle.is_truck else (0.52, 0.82)
        lamps = [face.patch(0.03, 0.2, low, high), face.patch(0.8, 0.97, low, high)]
        canvas.decorate(np.stack(lamps), colour)
        if not vehicle.is_truck:
            canvas.decorate(face.patch(0.37, 0.63, 0.28, 0.48)[None], (200, 215, 215))
            canvas.decorate(face.patch(0.0, 1.0, 0.0, 0.14)[None], (45, 45, 45))
