"""Samples of several inputs from a folder with a sub-folder for each."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from artifacts.errors import InputError, UnsafeFileError
from artifacts.folder_samples import FolderSamples
from artifacts.input_spec import InputSpec
from artifacts.samples import TensorShape, open_samples

INPUTS = {
    "left": TensorShape((1, 3, 8, 12)),
    "right": TensorShape((1, 3, 8, 12)),
    "pose": TensorShape((1, 6)),
}


@pytest.fixture
def stereo(tmp_path: Path) -> Path:
    """Two cameras and a pose, nine samples: the brightness is the number, right is one brighter."""
    for place, camera in enumerate(("left", "right")):
        (tmp_path / camera).mkdir()
        for number in range(9):
            level = np.full((8, 12, 3), 10 * number + place, np.uint8)
            cv2.imwrite(str(tmp_path / camera / f"{number:03}.png"), level)
    (tmp_path / "pose").mkdir()
    for number in range(9):
        np.save(tmp_path / "pose" / f"{number:03}.npy", np.full(6, number, np.float64))
    return tmp_path


def test_files_of_one_name_are_one_sample(stereo: Path) -> None:
    samples = open_samples(stereo, INPUTS, InputSpec(pixel_scale=1.0))
    assert isinstance(samples, FolderSamples)
    assert samples.names == tuple(f"{number:03}" for number in range(9))
    for number, sample in enumerate(samples):
        assert {name: array.shape for name, array in sample.items()} == {
            name: tensor.shape for name, tensor in INPUTS.items()
        }
        assert sample["left"].max() == 10 * number
        assert sample["right"].min() == 10 * number + 1
        assert sample["pose"].dtype == np.float32
        assert sample["pose"][0, 0] == number


def test_a_limit_spreads_over_all(stereo: Path) -> None:
    few = open_samples(stereo, INPUTS, InputSpec(pixel_scale=1.0), limit=3)
    assert [int(name) // 3 for name in few.names] == [0, 1, 2]
    assert few[2]["right"].min() == 10 * int(few.names[2]) + 1


def test_black_and_white_are_known_of_the_cameras(stereo: Path) -> None:
    black, white = open_samples(stereo, INPUTS, InputSpec()).extremes
    assert {black["left"].max(), white["right"].min()} == {0.0, 1.0}
    assert black["pose"][0, 0] == white["pose"][0, 0] == 0.0


def test_a_state_needs_no_folder(stereo: Path) -> None:
    inputs = {**INPUTS, "hidden": TensorShape((1, 4))}
    samples = open_samples(stereo, inputs, InputSpec(), optional=("hidden",))
    assert samples[0].keys() == INPUTS.keys()


def test_sub_folders_and_names_with_slashes(stereo: Path) -> None:
    for number in (0, 1):
        folder = stereo / "cameras" / "rear" / f"drive{number}"
        folder.mkdir(parents=True)
        (stereo / "left" / f"{number:03}.png").rename(folder / "a.png")
        (stereo / "gps" / f"drive{number}").mkdir(parents=True)
        np.save(stereo / "gps" / f"drive{number}" / "a.npy", np.zeros((1, 2), np.float32))
    inputs = {"/cameras/rear": TensorShape((1, 3, 8, 12)), "gps": TensorShape((1, 2))}
    samples = open_samples(stereo, inputs, InputSpec())
    assert samples.names == ("drive0/a", "drive1/a")
    assert samples[1]["/cameras/rear"].shape == (1, 3, 8, 12)


def test_a_name_leads_out_of_no_folder(stereo: Path) -> None:
    inputs = {"../left": TensorShape((1, 3, 8, 12)), "right": TensorShape((1, 3, 8, 12))}
    assert len(open_samples(stereo, inputs, InputSpec())) == 9
    with pytest.raises(InputError, match=r"folder .* has no sub-folder for input '\.\./left'"):
        FolderSamples(stereo / "left", inputs, InputSpec(), None)


def spoil_pose(stereo: Path, array: object) -> None:
    np.save(stereo / "pose" / "000.npy", np.asarray(array), allow_pickle=True)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda folder: (folder / "right" / "004.png").unlink(),
            "'left' of .* has 9 files and 'right' 8, '004' in one of them alone; expected files of",
        ),
        (
            lambda folder: (folder / "left" / "004.png").rename(folder / "left" / "four.png"),
            "'004' in one of them alone",
        ),
        (
            lambda folder: (folder / "pose").rename(folder / "poses"),
            "no sub-folder for input 'pose'; expected one for each input: left, right, pose; put",
        ),
        (lambda folder: spoil_pose(folder, np.zeros(5)), r"has the shape \[5\]; expected \[6\]"),
        (lambda folder: spoil_pose(folder, np.zeros(6, np.int64)), "is int64; expected .* float32"),
        (lambda folder: spoil_pose(folder, [np.nan] * 6), "sample 000.npy has values that are NaN"),
        (lambda folder: (folder / "pose" / "000.npy").write_bytes(b"1 2 3"), "is damaged or no"),
        (lambda folder: (folder / "pose" / "000.npy").write_bytes(b""), "is damaged or no .npy"),
    ],
)
def test_what_does_not_fit_is_named(stereo: Path, spoil, said: str) -> None:
    spoil(stereo)
    with pytest.raises(InputError, match=said):
        open_samples(stereo, INPUTS, InputSpec())[0]


def test_no_pickle_is_opened(stereo: Path) -> None:
    spoil_pose(stereo, np.array([{}], object))
    with pytest.raises(UnsafeFileError, match=r"pose/000\.npy holds Python objects"):
        open_samples(stereo, INPUTS, InputSpec())[0]


def test_one_folder_of_pictures_says_what_several_inputs_need(stereo: Path) -> None:
    with pytest.raises(InputError, match=r"an \.npz with one array per input, or a folder with a"):
        open_samples(stereo / "left", INPUTS, InputSpec())


def test_a_video_is_told_how_to_become_pictures(tmp_path: Path) -> None:
    drive = tmp_path / "drive.MP4"
    drive.write_bytes(b"\0")
    with pytest.raises(InputError, match=r"is neither; .*; take pictures of a video: ffmpeg -i "):
        open_samples(drive, INPUTS, InputSpec())


def test_one_input_takes_a_folder_of_arrays(stereo: Path) -> None:
    inputs = {"x": TensorShape((1, 6))}
    samples = open_samples(stereo / "pose", inputs, InputSpec(), limit=4)
    assert len(samples) == 4
    assert [array["x"][0, 0] for array in samples] == [int(name[:3]) for name in samples.names]


def test_pictures_come_before_labels_that_lie_beside_them(stereo: Path) -> None:
    np.save(stereo / "left" / "000.npy", np.zeros((8, 12)))
    samples = open_samples(stereo / "left", {"x": INPUTS["left"]}, InputSpec())
    assert samples.names[0] == "000.png"
