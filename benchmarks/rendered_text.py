"""Draws pages and lines of text, for networks that read documents."""

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Picture = NDArray[np.uint8]
PAGE_SIZE = (800, 608)
LINE_SIZE = (48, 320)
TEXT = """
The camera's frame was late: a pixel of Lane 7 (at night, under rain) is not what it seems. Speed
30% higher, if possible; the vehicle stops before CROSSING. Depth error and range [mm] between
Munich and Oslo, km/h for every wheel turned left? Figure, table and section show that quality
remains within one percent of float.
"""
WORDS = TEXT.split()


def draw_page(seed: int, photo: Picture) -> Picture:
    """Returns a page, [800, 608, 3] BGR: a title, columns of text, a table, a photo, a caption."""
    rng = np.random.default_rng(seed)
    height, width = PAGE_SIZE
    page = Image.new("RGB", (width, height), tuple(rng.integers(225, 256, 3).tolist()))
    pen = ImageDraw.Draw(page)
    ink = tuple(rng.integers(0, 70, 3).tolist())
    margin = int(rng.integers(24, 60))
    _write(pen, rng, (margin, 30, width - margin, 80), int(rng.integers(22, 34)), ink)
    columns = int(rng.integers(1, 3))
    pitch = (width - 2 * margin) // columns
    for column in range(columns):
        left, right = margin + column * pitch, margin + (column + 1) * pitch - 14
        top = 100
        for block in rng.permutation(3):
            bottom = min(top + int(rng.integers(120, 300)), height - 40)
            if bottom - top > 60:
                if block == 0:
                    _write(pen, rng, (left, top, right, bottom), int(rng.integers(10, 17)), ink)
                elif block == 1:
                    _draw_table(pen, rng, (left, top, right, bottom), ink)
                else:
                    _paste(page, photo, (left, top, right, bottom - 22))
                    _write(pen, rng, (left, bottom - 18, right, bottom), 11, ink)
            top = bottom + 24
    return _photograph(np.asarray(page)[..., ::-1], rng)


def draw_line(seed: int) -> Picture:
    """Returns a line of text, [48, 320, 3] BGR."""
    rng = np.random.default_rng(seed)
    height, width = LINE_SIZE
    line = Image.new("RGB", (width, height), tuple(rng.integers(150, 256, 3).tolist()))
    size = int(rng.integers(18, 38))
    ink = tuple(rng.integers(0, 110, 3).tolist())
    _write(ImageDraw.Draw(line), rng, (6, (height - size) // 2 - 3, width, height), size, ink)
    return _photograph(np.asarray(line)[..., ::-1], rng)


def _write(
    pen: ImageDraw.ImageDraw,
    rng: np.random.Generator,
    box: tuple[int, int, int, int],
    size: int,
    ink: tuple[int, ...],
) -> None:
    font = ImageFont.load_default(size)
    left, top, right, bottom = box
    while top + size <= bottom:
        text = ""
        while font.getlength(text) < right - left:
            text += f"{rng.choice(WORDS)} " if rng.random() < 0.85 else f"{rng.integers(10_000)} "
        while text and font.getlength(text) > right - left:
            text = text[:-1]
        pen.text((left, top), text, fill=ink, font=font)
        top += int(1.35 * size)


def _draw_table(
    pen: ImageDraw.ImageDraw,
    rng: np.random.Generator,
    box: tuple[int, int, int, int],
    ink: tuple[int, ...],
) -> None:
    left, top, right, bottom = box
    columns, pitch = int(rng.integers(2, 5)), int(rng.integers(18, 30))
    width = (right - left) // columns
    for row in range(top, bottom - pitch, pitch):
        for column in range(left, left + columns * width, width):
            pen.rectangle((column, row, column + width, row + pitch), outline=ink)
            _write(pen, rng, (column + 4, row + 3, column + width - 4, row + pitch), 12, ink)


def _paste(page: Image.Image, photo: Picture, box: tuple[int, int, int, int]) -> None:
    left, top, right, bottom = box
    fitted = cv2.resize(photo, (right - left, bottom - top), interpolation=cv2.INTER_AREA)
    page.paste(Image.fromarray(fitted[..., ::-1]), (left, top))


def _photograph(picture: Picture, rng: np.random.Generator) -> Picture:
    """Tilts, blurs and adds noise, as a camera does."""
    height, width = picture.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), float(rng.normal(0, 1)), 1.0)
    picture = cv2.warpAffine(picture, turn, (width, height), borderMode=cv2.BORDER_REPLICATE)
    picture = cv2.GaussianBlur(picture, (0, 0), float(rng.uniform(0.3, 0.9)))
    noisy = picture + rng.normal(0, rng.uniform(1, 6), picture.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)
