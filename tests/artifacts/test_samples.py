"""Calibration data: pictures of every kind and `.npz` files, or an error that names the file."""

import io
import zipfile
from pathlib import Path

import cv2
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import InputError, UnsafeFileError
from artifacts.input_spec import InputSpec
from artifacts.samples import TensorShape, open_samples, spread_indices

INPUTS = {"x": TensorShape((1, 3, 8, 12))}
SPEC = InputSpec(pixel_scale=1.0)


@pytest.fixture
def picture() -> np.ndarray:
    generator = np.random.default_rng(0)
    return cv2.resize(generator.integers(0, 256, (6, 9, 3), np.uint8), (36, 24))


def write(path: Path, image: np.ndarray) -> Path:
    assert cv2.imwrite(str(path), image)
    return path


def read_one(folder: Path, spec: InputSpec = SPEC, **kwargs: object) -> np.ndarray:
    samples = open_samples(folder, INPUTS, spec, **kwargs)
    assert len(samples) == 1
    return samples[0]["x"]


@given(count=st.integers(1, 500), limit=st.integers(1, 500))
def test_subset_is_ordered_distinct_and_evenly_spread(count: int, limit: int) -> None:
    indices = spread_indices(count, limit)
    assert len(indices) == min(count, limit)
    assert indices == sorted(set(indices))
    assert 0 <= indices[0] <= indices[-1] < count
    parts = np.array(indices) * len(indices) / count
    assert (np.abs(parts - np.arange(len(indices))) <= 1).all()
    assert indices == spread_indices(count, limit)


@pytest.mark.parametrize("cameras", [2, 3, 4, 6])
@pytest.mark.parametrize("each", [2, 3, 4, 6, 8, 12])
def test_pictures_of_cameras_that_take_turns_are_chosen_of_all(cameras: int, each: int) -> None:
    """Of 32 * `each` pictures, every so many-th would be of some cameras alone."""
    chosen = np.bincount(np.array(spread_indices(32 * each, 32)) % cameras, minlength=cameras)
    assert chosen.min() >= 32 // cameras // 3


def test_folder_is_read_in_order_whatever_sizes_and_formats(
    tmp_path: Path, picture: np.ndarray
) -> None:
    for name, size in (("b.png", (40, 30)), ("a.jpg", (12, 8)), ("c.bmp", (7, 5)), ("D.WEBP", 0)):
        image = cv2.resize(picture, size) if size else picture
        encoded = cv2.imencode(Path(name.lower()).suffix, image)[1]
        (tmp_path / name).write_bytes(encoded.tobytes())
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / ".hidden.png").write_bytes(b"")
    samples = open_samples(tmp_path, INPUTS, SPEC)
    assert samples.names == ("D.WEBP", "a.jpg", "b.png", "c.bmp")
    for feeds in samples:
        assert feeds["x"].shape == (1, 3, 8, 12)
        assert feeds["x"].dtype == np.float32
    limited = open_samples(tmp_path, INPUTS, SPEC, limit=2)
    assert limited.names == ("a.jpg", "c.bmp")
    np.testing.assert_array_equal(limited[1]["x"], samples[3]["x"])
    assert len(samples[1:3]) == 2


def test_sub_folders_are_read_only_where_the_folder_has_no_pictures(
    tmp_path: Path, picture: np.ndarray
) -> None:
    (tmp_path / "labels").mkdir()
    write(tmp_path / "labels/m.png", picture)
    assert open_samples(tmp_path, INPUTS, SPEC).names == ("labels/m.png",)
    write(tmp_path / "a.png", picture)
    assert open_samples(tmp_path, INPUTS, SPEC).names == ("a.png",)


def test_grey_becomes_three_equal_channels(tmp_path: Path, picture: np.ndarray) -> None:
    write(tmp_path / "g.png", cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY))
    values = read_one(tmp_path)
    np.testing.assert_array_equal(values[0, 0], values[0, 1])
    np.testing.assert_array_equal(values[0, 0], values[0, 2])
    assert values.std() > 0


def test_the_extremes_are_black_and_white_as_the_spec_prepares_them(
    tmp_path: Path, picture: np.ndarray
) -> None:
    write(tmp_path / "a.png", picture)
    spec = InputSpec(mean=(0.5, 0.4, 0.3), std=(0.5, 0.5, 0.25))
    black, white = open_samples(tmp_path, INPUTS, spec).extremes
    assert black["x"].shape == white["x"].shape == INPUTS["x"].shape
    np.testing.assert_allclose(black["x"][0, :, 0, 0], [-1, -0.8, -1.2], rtol=1e-6)
    np.testing.assert_allclose(white["x"][0, :, -1, -1], [1, 1.2, 2.8], rtol=1e-6)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".ppm"])
def test_16_bit_is_scaled_to_8(
    tmp_path: Path, picture: np.ndarray, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    deep = tmp_path / f"deep{suffix}"
    write(deep, picture.astype(np.uint16) * 257)
    values = read_one(tmp_path)
    read_one(tmp_path)
    assert caplog.text.count("have 16 bits a channel, of which the upper 8 are kept") == 1
    deep.unlink()
    write(tmp_path / "flat.png", picture)
    np.testing.assert_allclose(values, read_one(tmp_path), atol=1)


def test_a_picture_of_real_numbers_is_refused(tmp_path: Path, picture: np.ndarray) -> None:
    write(tmp_path / "depth.tiff", picture.astype(np.float32))
    with pytest.raises(InputError, match=r"float32 pixels; expected 8 or 16 bits .* \.npy files"):
        read_one(tmp_path)


def test_alpha_is_dropped(tmp_path: Path, picture: np.ndarray) -> None:
    alpha = np.full((*picture.shape[:2], 1), 7, np.uint8)
    write(tmp_path / "a.png", np.concatenate([picture, alpha], axis=2))
    values = read_one(tmp_path)
    write(tmp_path / "a.png", picture)
    np.testing.assert_array_equal(values, read_one(tmp_path))


def test_exif_orientation_is_applied(tmp_path: Path, picture: np.ndarray) -> None:
    upright = read_one(write(tmp_path / "p.jpg", picture))
    content = (tmp_path / "p.jpg").read_bytes()
    rotated_180 = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0"
    segment = b"Exif\0\0" + rotated_180
    exif = b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment
    (tmp_path / "p.jpg").write_bytes(content[:2] + exif + content[2:])
    turned = read_one(tmp_path / "p.jpg")
    np.testing.assert_allclose(turned, upright[..., ::-1, ::-1], atol=3)
    assert np.abs(turned - upright).max() > 20


def test_color_order_is_the_specs(tmp_path: Path, picture: np.ndarray) -> None:
    write(tmp_path / "p.png", picture)
    rgb, bgr = (read_one(tmp_path, InputSpec(color=color)) for color in ("rgb", "bgr"))
    np.testing.assert_array_equal(rgb, bgr[:, ::-1])


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".webp"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_truncated_picture_is_refused_by_name(
    tmp_path: Path, picture: np.ndarray, suffix: str, share: float
) -> None:
    path = write(tmp_path / f"cut{suffix}", picture)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    samples = open_samples(tmp_path, INPUTS, SPEC)
    with pytest.raises(InputError, match=f"cut{suffix} is truncated, damaged or not a picture"):
        samples[0]


def test_text_called_png_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "t.png").write_text("I am text")
    with pytest.raises(InputError, match=r"t\.png"):
        open_samples(tmp_path, INPUTS, SPEC)[0]


def test_empty_folder_missing_path_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no picture"):
        open_samples(tmp_path, INPUTS, SPEC)
    with pytest.raises(InputError, match="does not exist"):
        open_samples(tmp_path / "none", INPUTS, SPEC)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="cannot be opened: Too many levels of symbolic links"):
        open_samples(tmp_path / "loop", INPUTS, SPEC)
    (tmp_path / "link").symlink_to("nothing")
    with pytest.raises(InputError, match="is a link to nothing"):
        open_samples(tmp_path / "link", INPUTS, SPEC)
    with pytest.raises(InputError, match="File name too long"):
        open_samples(tmp_path / ("n" * 300), INPUTS, SPEC)
    (tmp_path / "a.npy").write_bytes(b"x")
    with pytest.raises(InputError, match=r"is neither.*\.npz"):
        open_samples(tmp_path / "a.npy", INPUTS, SPEC)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"a": TensorShape((1, 3, 8, 8)), "b": TensorShape((1, 4))}, "2 inputs"),
        ({"x": TensorShape((1, 5, 8, 8))}, r"\[1, 5, 8, 8\]"),
        ({"x": TensorShape((1, 10))}, r"\[1, 10\]"),
        ({"x": TensorShape((4, 3, 8, 8))}, "batch of 1"),
        ({"x": TensorShape((1, 1, 8, 8))}, "1 channels"),
        ({"x": TensorShape((1, 3, 8, 8), "int64")}, "int64"),
        ({**INPUTS, "mean": TensorShape((1, 1, 1, 3))}, "mean.*exported as constants"),
    ],
)
def test_input_that_no_picture_fits_is_refused(
    tmp_path: Path, picture: np.ndarray, inputs: dict[str, TensorShape], message: str
) -> None:
    write(tmp_path / "p.png", picture)
    with pytest.raises(InputError, match=message):
        open_samples(tmp_path, inputs, InputSpec())


def test_channels_last_grey_unbatched_and_integer_inputs(
    tmp_path: Path, picture: np.ndarray
) -> None:
    write(tmp_path / "p.png", picture)
    values = read_one(tmp_path)
    last = open_samples(tmp_path, {"x": TensorShape((1, 8, 12, 3))}, SPEC)[0]["x"]
    np.testing.assert_array_equal(last, values.transpose(0, 2, 3, 1))
    grey = InputSpec(mean=(0.0,), std=(1.0,))
    shape = {"x": TensorShape((1, 1, 8, 12))}
    assert open_samples(tmp_path, shape, grey)[0]["x"].shape == (1, 1, 8, 12)
    apart = open_samples(tmp_path, {"x": TensorShape((3, 8, 12))}, SPEC)[0]["x"]
    np.testing.assert_array_equal(apart, values[0])
    last_apart = open_samples(tmp_path, {"x": TensorShape((8, 12, 3))}, SPEC)[0]["x"]
    np.testing.assert_array_equal(last_apart, last[0])
    raw = open_samples(tmp_path, {"x": TensorShape((1, 3, 8, 12), "uint8")}, SPEC)[0]["x"]
    assert raw.dtype == np.uint8
    np.testing.assert_array_equal(raw, values)


def test_npz_rows_are_read_in_any_order_and_converted(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(9, 3, 8, 12))
    for save, dtype in ((np.savez, np.float64), (np.savez_compressed, np.float16)):
        save(tmp_path / "d.npz", x=values.astype(dtype))
        samples = open_samples(tmp_path / "d.npz", INPUTS, SPEC)
        assert len(samples) == 9
        assert samples.names[4].endswith("d.npz[4]")
        for index in (0, 1, 7, 3, 8, 8, 0):
            expected = values[index : index + 1].astype(dtype).astype(np.float32)
            np.testing.assert_array_equal(samples[index]["x"], expected)
    few = open_samples(tmp_path / "d.npz", INPUTS, SPEC, limit=3)
    assert [int(name[-2]) for name in few.names] == spread_indices(9, 3)


def test_npz_of_bfloat16_is_read_as_what_it_was_written_from(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(2, 3, 8, 12)).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "d.npz", x=array)
    feeds = open_samples(tmp_path / "d.npz", INPUTS, SPEC)[:]
    np.testing.assert_array_equal(np.concatenate([f["x"] for f in feeds]), array.astype("f4"))


def test_npz_of_several_inputs(tmp_path: Path) -> None:
    inputs = {"x": TensorShape((1, 2)), "n": TensorShape((1, 3), "int64")}
    np.savez(tmp_path / "d.npz", x=np.ones((4, 2), np.float32), n=np.ones((4, 3), np.int32), z=[1])
    feeds = open_samples(tmp_path / "d.npz", inputs, SPEC)[3]
    assert feeds["n"].dtype == np.int64
    assert feeds["x"].shape == (1, 2)


GOOD = np.zeros((2, 3, 8, 12), np.float32)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"images": GOOD, "depths": GOOD},
            r"images, depths; .*'x' \[samples, 3, 8, 12\] float32.*savez",
        ),
        ({}, r"\(none\)"),
        ({"x": GOOD.astype(np.uint8)}, "uint8.*raw pixels"),
        ({"x": GOOD.astype(np.int64)}, "int64"),
        ({"x": GOOD.astype(np.complex64)}, "complex64"),
        ({"x": GOOD.astype("U3")}, "<U3"),
        ({"x": GOOD.astype(ml_dtypes.float8_e4m3fn)}, r"V1; .*numpy has no such type"),
        ({"x": GOOD[:, :, :4]}, r"\[2, 3, 4, 12\]; expected \[samples, 3, 8, 12\]"),
        ({"x": GOOD[0]}, r"\[3, 8, 12\]"),
        ({"x": np.float32(1)}, r"\[\]"),
        ({"x": GOOD[:0]}, "no samples"),
        ({"x": np.asfortranarray(GOOD)}, "Fortran"),
    ],
)
def test_npz_of_other_names_types_or_shapes_is_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(InputError, match=message):
        open_samples(tmp_path / "d.npz", INPUTS, SPEC)


def test_a_single_array_is_that_of_a_single_input(tmp_path: Path) -> None:
    """A module's argument, its export and a training have other names for the same input."""
    rng = np.random.default_rng(0)
    array = rng.random(GOOD.shape, np.float32)
    np.savez(tmp_path / "d.npz", anything=array)
    (feed,) = open_samples(tmp_path / "d.npz", INPUTS, SPEC)[1:]
    np.testing.assert_array_equal(feed["x"][0], array[1])
    two = {**INPUTS, "y": INPUTS["x"]}
    with pytest.raises(InputError, match="arrays anything"):
        open_samples(tmp_path / "d.npz", two, SPEC)


def test_npz_for_inputs_with_a_batch_or_none(tmp_path: Path) -> None:
    """Six cameras at once, a camera's matrix, and a number."""
    shapes = {"cameras": (6, 3, 4, 4), "matrix": (3, 3), "one": (1, 2), "speed": ()}
    inputs = {name: TensorShape(shape) for name, shape in shapes.items()}
    rng = np.random.default_rng(0)
    arrays = {name: rng.random((5, *shape), np.float32) for name, shape in shapes.items()}
    arrays["one"] = arrays["one"][:, 0]
    np.savez(tmp_path / "d.npz", **arrays)
    feeds = open_samples(tmp_path / "d.npz", inputs, SPEC)[3]
    assert {name: array.shape for name, array in feeds.items()} == shapes
    for name, array in feeds.items():
        np.testing.assert_array_equal(array.reshape(arrays[name][3].shape), arrays[name][3])
    np.savez(tmp_path / "d.npz", **{**arrays, "cameras": arrays["cameras"][:, 0]})
    with pytest.raises(InputError, match=r"expected \[samples, 6, 3, 4, 4\] float32"):
        open_samples(tmp_path / "d.npz", inputs, SPEC)


def test_npz_of_stacked_samples_with_their_batch_of_one(tmp_path: Path) -> None:
    array = np.random.default_rng(0).random((5, *INPUTS["x"].shape), np.float32)
    np.savez(tmp_path / "d.npz", x=array)
    feeds = open_samples(tmp_path / "d.npz", INPUTS, SPEC)[3]
    np.testing.assert_array_equal(feeds["x"], array[3])


def test_npz_with_pickled_objects_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Canary:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return exec, (f"open({str(canary)!r}, 'w').close()",)

    np.savez(tmp_path / "d.npz", x=np.array([Canary()], dtype=object))
    with pytest.raises(UnsafeFileError, match="Python objects"):
        open_samples(tmp_path / "d.npz", INPUTS, SPEC)
    assert not canary.exists()


def test_npz_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).normal(size=GOOD.shape).astype(np.float32))
    content = path.read_bytes()
    for length in range(0, len(content), len(content) // 16):
        path.write_bytes(content[:length])
        with pytest.raises(InputError):
            open_samples(path, INPUTS, SPEC)
    path.write_bytes(content[:300] + b"\xff" * 20 + content[320:])
    with pytest.raises(InputError, match="damaged"):
        open_samples(path, INPUTS, SPEC)[1]


def test_npz_whose_header_promises_more_than_there_is_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, GOOD)
    content = buffer.getvalue().replace(b"(2, 3, 8, 12), ", b"(9, 3, 8, 12), ")
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(InputError, match="incomplete"):
        open_samples(tmp_path / "d.npz", INPUTS, SPEC)


def test_nan_is_refused_by_its_row(tmp_path: Path) -> None:
    values = GOOD.copy()
    values[1, 0, 0, 0] = np.nan
    np.savez(tmp_path / "d.npz", x=values)
    samples = open_samples(tmp_path / "d.npz", INPUTS, SPEC)
    samples[0]
    with pytest.raises(InputError, match=r"d\.npz\[1\] has values that are NaN"):
        samples[1]
    np.savez(tmp_path / "d.npz", x=np.full(GOOD.shape, 1e300))
    with pytest.raises(InputError, match="infinite"):
        open_samples(tmp_path / "d.npz", INPUTS, SPEC)[0]
