"""Light and weather: the sun's direction, the colour of the sky, fog, night, sensor noise."""

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from perception.scene.canvas import Canvas, Colour


@dataclass(frozen=True, kw_only=True)
class Lighting:
    """How a scene is lit and how the camera sees it.

    Attributes:
        ambient: light that reaches every face, 0 to 1.
        diffuse: light of the sun on a face turned to it, 0 to 1.
        sun: unit vector to the sun, vehicle frame.
        sky: BGR at the zenith and at the horizon.
        tint: factors on B, G and R.
        is_night: headlights are on and light falls off with distance.
        fog_per_m: extinction coefficient.
        blur_px: sigma of the lens blur.
        gamma: exponent of the exposure curve.
        noise: standard deviation of the sensor noise in grey levels.
    """

    ambient: float
    diffuse: float
    sun: tuple[float, float, float]
    sky: tuple[Colour, Colour]
    tint: tuple[float, float, float]
    is_night: bool
    fog_per_m: float
    blur_px: float
    gamma: float
    noise: float

    def shade(self, colour: Colour, normal: NDArray) -> tuple[float, float, float]:
        """The colour of a matt face with the unit normal [3] in the vehicle frame."""
        cosine = max(
            0.0, float(normal[0] * self.sun[0] + normal[1] * self.sun[1] + normal[2] * self.sun[2])
        )
        light = self.ambient + self.diffuse * cosine
        b, g, r = (c * light * t for c, t in zip(colour, self.tint, strict=True))
        return min(b, 255.0), min(g, 255.0), min(r, 255.0)


def sample_lighting(rng: np.random.Generator) -> Lighting:
    """Draws day (40 %), overcast (25 %), dusk (20 %) or night (15 %)."""
    kind = rng.choice(4, p=[0.4, 0.25, 0.2, 0.15])
    azimuth = rng.uniform(0, 2 * np.pi)
    elevation = rng.uniform(0.5, 1.2) if kind == 0 else rng.uniform(0.2, 0.5)
    sun = (
        float(np.cos(elevation) * np.sin(azimuth)),
        float(np.sin(elevation)),
        float(np.cos(elevation) * np.cos(azimuth)),
    )
    jitter = rng.uniform(0.9, 1.1)
    ambient, diffuse = ((0.62, 0.5), (0.8, 0.08), (0.5, 0.4), (0.75, 0.0))[kind]
    zenith, horizon, tint = (
        ((225, 160, 95), (240, 220, 195), (0.97, 1.0, 1.03)),
        ((190, 185, 180), (215, 212, 208), (1.0, 1.0, 0.98)),
        ((150, 95, 80), (110, 160, 240), (0.82, 0.95, 1.1)),
        ((70, 48, 40), (95, 75, 65), (1.05, 0.95, 0.9)),
    )[kind]
    fog = rng.uniform(0.006, 0.018) if rng.random() < 0.2 else rng.uniform(0.0, 0.003)
    return Lighting(
        ambient=ambient * jitter,
        diffuse=diffuse,
        sun=sun,
        sky=(zenith, horizon),
        tint=tint,
        is_night=kind == 3,
        fog_per_m=float(fog),
        blur_px=float(rng.choice([0.0, rng.uniform(0.4, 0.9)])),
        gamma=float(rng.uniform(0.85, 1.2)),
        noise=float(rng.uniform(1.0, 5.0) + (3.0 if kind == 3 else 0.0)),
    )


def apply_air(canvas: Canvas, lighting: Lighting) -> None:
    """Applies night and fog, which depend on the distance, to the painted scene in place."""
    if lighting.is_night:
        lit = np.minimum(canvas.inverse_depth * 9.0, 0.62)
        lit += 0.28
        darkness = np.zeros_like(canvas.image)
        cv2.blendLinear(canvas.image, darkness, lit, 1e-6 + 1.0 - lit, canvas.image)
    if lighting.fog_per_m > 0.001:
        clear = np.maximum(canvas.inverse_depth, 1 / 400)
        np.reciprocal(clear, out=clear)
        clear *= -lighting.fog_per_m
        cv2.exp(clear, clear)
        brightness = 0.35 if lighting.is_night else 0.95
        colour = np.array(lighting.sky[1], np.float32) * brightness
        fog = np.full_like(canvas.image, colour.astype(np.uint8))
        cv2.blendLinear(canvas.image, fog, clear, 1e-6 + 1.0 - clear, canvas.image)


def expose(
    image: NDArray[np.uint8], lighting: Lighting, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """What the sensor makes of the scene: lens blur, exposure curve and noise, [H, W, 3]."""
    if lighting.blur_px > 0:
        image = cv2.GaussianBlur(image, (0, 0), lighting.blur_px)
    curve = np.rint(255 * (np.arange(256) / 255) ** lighting.gamma).astype(np.uint8)
    image = cv2.LUT(image, curve)
    height, width = image.shape[:2]
    bank = _noise_bank(height + 64, width + 64)
    top, left = rng.integers(0, 64, 2)
    scale = lighting.noise / 32
    crop = bank[top : top + height, left : left + width]
    noisy: NDArray[np.uint8] = cv2.addWeighted(image, 1.0, crop, scale, -128 * scale)
    return noisy


@lru_cache(maxsize=4)
def _noise_bank(height: int, width: int) -> NDArray[np.uint8]:
    noise = np.random.default_rng(7).standard_normal((height, width, 3), np.float32)
    bank: NDArray[np.uint8] = np.clip(noise * 32 + 128.5, 0, 255).astype(np.uint8)
    return bank
