from pathlib import Path

import cv2
import numpy as np
import pytest

from artifacts.errors import InputError
from perception.data.picture import read_picture

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (20, 30, 3), np.uint8)


def test_colour_is_kept(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), COLOUR)
    np.testing.assert_array_equal(read_picture(tmp_path / "a.png"), COLOUR)


def test_grey_is_repeated(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), COLOUR[..., 0])
    picture = read_picture(tmp_path / "a.png")
    assert picture.shape == (20, 30, 3)
    assert (picture == COLOUR[..., :1]).all()


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 3)])
def test_the_upper_half_of_16_bits_is_kept(tmp_path: Path, shape: tuple[int, ...]) -> None:
    deep = RNG.integers(0, 65536, shape, np.uint16)
    cv2.imwrite(str(tmp_path / "a.png"), deep)
    picture = read_picture(tmp_path / "a.png")
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(picture[..., 0], deep.reshape(20, 30, -1)[..., 0] >> 8)


def test_transparency_is_dropped(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), np.dstack([COLOUR, COLOUR[..., 0]]))
    np.testing.assert_array_equal(read_picture(tmp_path / "a.png"), COLOUR)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".webp", ".tif", ".ppm"])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.97])
def test_a_cut_off_file_is_refused_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], suffix: str, part: float
) -> None:
    path = tmp_path / f"cut{suffix}"
    cv2.imwrite(str(path), COLOUR)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(InputError, match="cut") as caught:
        read_picture(path)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("content", [b"", b"hello, this is text", b"\xff\xd8\xff\xd9"])
def test_what_is_no_picture_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "no.jpg").write_bytes(content)
    with pytest.raises(InputError, match=r"no\.jpg"):
        read_picture(tmp_path / "no.jpg")


def test_float_pixels_are_refused(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.tiff"), COLOUR.astype(np.float32))
    with pytest.raises(InputError, match="float32"):
        read_picture(tmp_path / "a.tiff")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.png"):
        read_picture(tmp_path / "missing.png")
