"""Walking people, drawn as flat jointed figures that face the camera."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perception.scene.canvas import Canvas, Colour
from perception.scene.lighting import Lighting

_HEAD = np.stack([np.cos(np.arange(12) * np.pi / 6), np.sin(np.arange(12) * np.pi / 6)], axis=-1)
_SKIN = ((150, 180, 225), (110, 145, 195), (70, 95, 140), (50, 65, 95))
_SHIRTS = (
    (50, 60, 210), (60, 170, 230), (210, 120, 50), (230, 230, 230), (90, 180, 70),
    (180, 70, 160), (45, 45, 50), (40, 210, 230),
)  # fmt: skip
_TROUSERS = ((90, 55, 35), (40, 40, 40), (60, 80, 110), (120, 110, 100), (70, 40, 60))


@dataclass(frozen=True, kw_only=True)
class Pedestrian:
    """A person standing or walking on the ground.

    Attributes:
        x: metres to the right.
        z: metres ahead.
        height: metres.
        stride: swing of the legs, -1 to 1.
        sway: 1 when the side is seen, down to 0.35 when walking along the line of sight.
        colours: BGR of skin, shirt and trousers.
    """

    x: float
    z: float
    height: float
    stride: float
    sway: float
    colours: tuple[Colour, Colour, Colour]


def sample_pedestrian(rng: np.random.Generator, x: float, z: float) -> Pedestrian:
    """Draws the looks of a person at a place."""
    return Pedestrian(
        x=x,
        z=z,
        height=float(rng.uniform(1.5, 1.9)),
        stride=float(rng.uniform(-1, 1)),
        sway=float(rng.uniform(0.35, 1.0)),
        colours=(
            _SKIN[rng.integers(len(_SKIN))],
            _SHIRTS[rng.integers(len(_SHIRTS))],
            _TROUSERS[rng.integers(len(_TROUSERS))],
        ),
    )


def paint_pedestrian(canvas: Canvas, lighting: Lighting, person: Pedestrian, instance: int) -> None:
    """Paints a person; what lies behind must have been painted before."""
    camera = canvas.camera
    foot = camera.to_camera(np.array([person.x, 0.0, person.z]))
    depth = float(foot[2])
    base = camera.to_pixels(foot)
    scale = camera.focal_px / depth * person.height
    facing = np.array([0.0, 0.35, -0.94])
    skin, shirt, trousers = (lighting.shade(c, facing) for c in person.colours)

    def fill(outline: NDArray, colour: Colour) -> None:
        canvas.fill_flat(base + outline * np.array([scale, -scale]), colour, instance, depth)

    swing = 0.13 * person.stride * person.sway
    shade = [c * 0.75 for c in trousers]
    hip = 0.035
    fill(_limb((-hip, 0.5), (-hip - swing * 0.6, 0.27), (0.062, 0.055)), shade)
    fill(_limb((-hip - swing * 0.6, 0.29), (-hip - swing * 1.3, 0.0), (0.055, 0.05)), shade)
    fill(_limb((hip, 0.5), (hip + swing * 0.7, 0.27), (0.062, 0.055)), trousers)
    fill(_limb((hip + swing * 0.7, 0.29), (hip + swing * 1.2, 0.0), (0.055, 0.05)), trousers)
    fill(_limb((-0.11, 0.79), (-0.125 + swing, 0.47), (0.045, 0.035)), [c * 0.8 for c in shirt])
    fill(_limb((0.11, 0.79), (0.125 - swing, 0.47), (0.045, 0.035)), [c * 0.8 for c in shirt])
    torso = np.array(
        [[-0.095, 0.46], [0.095, 0.46], [0.125, 0.8], [0.06, 0.84], [-0.06, 0.84], [-0.125, 0.8]]
    )
    fill(torso, shirt)
    fill(_HEAD * np.array([0.062, 0.075]) + np.array([0.0, 0.92]), skin)
    hair = np.array([[-0.06, 0.94], [0.06, 0.94], [0.045, 0.99], [-0.045, 0.99]])
    fill(hair, [c * 0.35 for c in skin])


def _limb(
    start: tuple[float, float], end: tuple[float, float], widths: tuple[float, float]
) -> NDArray:
    """Outline [4, 2] of a limb, in parts of the person's height."""
    (x0, y0), (x1, y1) = start, end
    a, b = widths[0] / 2, widths[1] / 2
    return np.array([[x0 - a, y0], [x0 + a, y0], [x1 + b, y1], [x1 - b, y1]])
