"""The ground: a curved road with lane lines, sidewalks and terrain."""

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from perception.scene.camera import Camera
from perception.scene.canvas import Canvas, Colour
from perception.scene.lighting import Lighting

LINE_WIDTH_M = 0.34
_STEP_M = 0.04
_HALF_WIDTH_M = 24.0
_MIN_LINE_PX = 3.5
_DASH_M = 4.5
_TERRAIN, _SIDEWALK, _CURB, _ASPHALT, _WHITE, _YELLOW = range(6)
_CLASS_OF_MATERIAL = np.zeros(256, np.uint8)
_CLASS_OF_MATERIAL[:6] = (0, 1, 1, 2, 3, 3)


@dataclass(frozen=True, kw_only=True)
class Road:
    """A road seen from the ego vehicle; lateral positions count from the middle, to the right.

    Attributes:
        lanes: number of lanes.
        lane_width_m: width of one lane.
        oncoming: how many lanes, from the left, come towards the camera.
        ego_lateral_m: lateral position of the camera.
        heading_rad: direction of the road at the camera, to the right.
        curvature_per_m: curvature of the road, to the right.
        shoulder_m: asphalt between the outer line and the curb.
        sidewalk_m: width of both sidewalks.
        travelled_m: where along the road the camera is (moves dashes and texture).
        colours: BGR of terrain, sidewalk, curb, asphalt, white line, yellow line.
    """

    lanes: int
    lane_width_m: float
    oncoming: int
    ego_lateral_m: float
    heading_rad: float
    curvature_per_m: float
    shoulder_m: float
    sidewalk_m: float
    travelled_m: float
    colours: tuple[Colour, ...]

    @property
    def half_width_m(self) -> float:
        """Distance from the middle to the curb."""
        return self.lanes * self.lane_width_m / 2 + self.shoulder_m

    def lane_centre_m(self, lane: int) -> float:
        """Lateral position of the middle of a lane, counted from the left."""
        return (lane + 0.5 - self.lanes / 2) * self.lane_width_m

    def to_x(self, lateral_m: float, z: float) -> float:
        """The x of a lateral position `z` metres ahead (parabola in place of the arc)."""
        return (
            lateral_m - self.ego_lateral_m + self.heading_rad * z + self.curvature_per_m * z * z / 2
        )

    def yaw(self, z: float) -> float:
        """Direction of the road `z` metres ahead, in radians to the right."""
        return float(np.arctan(self.heading_rad + self.curvature_per_m * z))


def sample_road(rng: np.random.Generator) -> Road:
    """Draws a road of 2 to 4 lanes."""
    lanes = int(rng.integers(2, 5))
    oncoming = (0, 0, 1, 1, 2)[lanes] if rng.random() < 0.75 else 0
    width = rng.uniform(3.2, 3.9)
    ego_lane = int(rng.integers(oncoming, lanes))
    grey = rng.uniform(70, 120)
    terrain = ((60, 110, 80), (75, 130, 120), (70, 95, 65), (110, 135, 150))[rng.integers(4)]
    pavement = ((150, 160, 170), (140, 150, 190), (165, 165, 160))[rng.integers(3)]
    asphalt = (grey * rng.uniform(0.98, 1.06), grey, grey * rng.uniform(0.94, 1.02))
    return Road(
        lanes=lanes,
        lane_width_m=width,
        oncoming=oncoming,
        ego_lateral_m=(ego_lane + 0.5 - lanes / 2) * width + rng.normal(0, 0.25),
        heading_rad=rng.normal(0, 0.025),
        curvature_per_m=rng.normal(0, 0.0022),
        shoulder_m=rng.uniform(0.3, 1.2),
        sidewalk_m=rng.uniform(1.8, 3.5),
        travelled_m=rng.uniform(0, 1000),
        colours=(terrain, pavement, (175, 180, 180), asphalt, (232, 235, 235), (60, 190, 235)),
    )


def paint_ground(canvas: Canvas, road: Road, lighting: Lighting) -> NDArray[np.uint8]:
    """Paints the ground into the canvas and returns its class of every pixel [H, W]."""
    camera = canvas.camera
    first, depth, z = camera.ground_rows()
    cells = int(2 * _HALF_WIDTH_M / _STEP_M)
    cell = _lateral_cells(road, camera, depth, z, cells)
    along = np.remainder(z + road.travelled_m, 2 * _DASH_M)
    line_px = LINE_WIDTH_M * camera.focal_px / depth * (288 / camera.height)
    kind = np.where(line_px < _MIN_LINE_PX, 2, along > _DASH_M)
    material = _material_tables(road, cells).ravel().take(cell + (kind * cells)[:, None])
    up = np.array([0.0, 1.0, 0.0])
    palette = np.zeros((256, 1, 3), np.uint8)
    palette[: len(road.colours), 0] = [lighting.shade(c, up) for c in road.colours]
    colour = cv2.applyColorMap(material, palette)
    grain_row = (np.remainder(z + road.travelled_m, 1000) * 12).astype(np.intp) & 255
    cell >>= 1
    cell &= 255
    cell += (grain_row * 256)[:, None]
    grain = _grain().ravel().take(cell)
    grain *= np.clip(1.2 - z / 40, 0.15, 1).astype(np.float32)[:, None]
    grain += 1
    canvas.image[first:] = cv2.multiply(colour, cv2.merge([grain] * 3), dtype=cv2.CV_8U)
    canvas.inverse_depth[first:] = (1 / depth).astype(np.float32)[:, None]
    mask = np.zeros((camera.height, camera.width), np.uint8)
    mask[first:] = cv2.LUT(material, _CLASS_OF_MATERIAL)
    return mask


def _lateral_cells(
    road: Road, camera: Camera, depth: NDArray, z: NDArray, cells: int
) -> NDArray[np.intp]:
    """Lateral position of each pixel [R, W] below the horizon, in steps of `_STEP_M`."""
    middle = road.heading_rad * z + road.curvature_per_m * z * z / 2 - road.ego_lateral_m
    scale = depth / (camera.focal_px * _STEP_M)
    start = (_HALF_WIDTH_M - middle) / _STEP_M - scale * (camera.width - 1) / 2
    lateral = np.arange(camera.width, dtype=np.float32) * scale.astype(np.float32)[:, None]
    lateral += start.astype(np.float32)[:, None]
    np.minimum(np.maximum(lateral, 0, out=lateral), cells - 1, out=lateral)
    return lateral.astype(np.intp)


def _material_tables(road: Road, cells: int) -> NDArray[np.uint8]:
    """Material of each lateral cell: [dash there, dash not there, too far to see lines]."""
    lateral = (np.arange(cells) + 0.5) * _STEP_M - _HALF_WIDTH_M
    edge = road.half_width_m
    plain = np.full(cells, _TERRAIN, np.uint8)
    plain[np.abs(lateral) < edge + road.sidewalk_m] = _SIDEWALK
    plain[np.abs(lateral) < edge + 0.2] = _CURB
    plain[np.abs(lateral) < edge] = _ASPHALT
    tables = np.stack([plain] * 3)
    for line in range(road.lanes + 1):
        position = (line - road.lanes / 2) * road.lane_width_m
        near = np.abs(lateral - position) < LINE_WIDTH_M / 2
        is_divider = line == road.oncoming and line > 0
        is_solid = line in (0, road.lanes) or is_divider
        tables[: 2 if is_solid else 1, near] = _YELLOW if is_divider else _WHITE
    return tables


@lru_cache(maxsize=1)
def _grain() -> NDArray[np.float32]:
    """Relative brightness of the ground, [256, 256], tiles seamlessly enough for asphalt."""
    rng = np.random.default_rng(11)
    fine = rng.standard_normal((256, 256), np.float32) * 0.05
    coarse = cv2.resize(
        rng.standard_normal((24, 24), np.float32), (256, 256), None, 0, 0, cv2.INTER_CUBIC
    )
    grain: NDArray[np.float32] = fine + coarse * np.float32(0.05)
    return grain
