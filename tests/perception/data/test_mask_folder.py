from pathlib import Path

import cv2
import numpy as np
import pytest

from artifacts.errors import InputError
from perception.data.mask_folder import (
    CAMVID,
    CITYSCAPES,
    IGNORE,
    MaskFolderDataset,
    MaskFormat,
)
from perception.scene.sample import IGNORE_INDEX, MASK_CLASSES

NUMBERS = MaskFormat(classes={0: "background", 1: "drivable", 2: "lane", 9: IGNORE})


def write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), pixels)


def picture() -> np.ndarray:
    return np.full((20, 30, 3), 90, np.uint8)


def numbers(*values: int) -> np.ndarray:
    return np.resize(np.array(values, np.uint8), (20, 30))


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for image, mask in (("b.ppm", "b.pgm"), ("a.jpg", "a.png")):
        write(tmp_path / "images" / image, picture())
        write(tmp_path / "masks" / mask, numbers(0, 1, 2, 9))
    return tmp_path / "images", tmp_path / "masks"


def test_numbers_become_classes(folders: tuple[Path, Path]) -> None:
    dataset = MaskFolderDataset(*folders, NUMBERS)
    assert len(dataset) == len(list(dataset)) == 2
    scene = dataset[0]
    wanted = [MASK_CLASSES.index(n) for n in ("background", "drivable", "lane")]
    np.testing.assert_array_equal(scene.mask.ravel()[:4], [*wanted, IGNORE_INDEX])
    assert scene.boxes.shape == (0, 4)
    assert np.isnan(scene.depth).all()


def test_colours_become_classes(tmp_path: Path) -> None:
    mask = np.zeros((20, 30, 3), np.uint8)
    mask[:10] = (128, 64, 100)
    write(tmp_path / "images/a.png", picture())
    write(tmp_path / "masks/a_L.png", mask)
    colours = MaskFormat(
        classes={(0, 0, 0): "background", (100, 64, 128): "drivable"}, mask_ending="_L"
    )
    scene = MaskFolderDataset(tmp_path / "images", tmp_path / "masks", colours)[0]
    assert (scene.mask[:10] == MASK_CLASSES.index("drivable")).all()
    assert (scene.mask[10:] == MASK_CLASSES.index("background")).all()


def test_cityscapes_names_and_numbers(tmp_path: Path) -> None:
    name = "aachen/aachen_000000_000019"
    write(tmp_path / f"leftImg8bit/{name}_leftImg8bit.png", picture())
    write(tmp_path / f"gtFine/{name}_gtFine_labelIds.png", numbers(*range(34)))
    write(tmp_path / f"gtFine/{name}_gtFine_color.png", picture())
    dataset = MaskFolderDataset(tmp_path / "leftImg8bit", tmp_path / "gtFine", CITYSCAPES)
    mask = dataset[0].mask.ravel()[:34]
    assert len(dataset) == 1
    named = {7: "drivable", 8: "sidewalk", 11: "background", 24: "pedestrian", 26: "vehicle"}
    for number, class_name in named.items():
        assert mask[number] == MASK_CLASSES.index(class_name)
    assert mask[0] == IGNORE_INDEX


def test_camvid_numbers(tmp_path: Path) -> None:
    write(tmp_path / "train/x.png", picture())
    write(tmp_path / "trainannot/x.png", numbers(*range(12)))
    mask = MaskFolderDataset(tmp_path / "train", tmp_path / "trainannot", CAMVID)[0].mask
    assert mask.ravel()[3] == MASK_CLASSES.index("drivable")
    assert mask.ravel()[11] == IGNORE_INDEX


def test_grey_and_16_bit_pictures_are_read(tmp_path: Path) -> None:
    write(tmp_path / "images/a.png", np.full((20, 30), 60_000, np.uint16))
    write(tmp_path / "masks/a.png", numbers(1).astype(np.uint16))
    scene = MaskFolderDataset(tmp_path / "images", tmp_path / "masks", NUMBERS)[0]
    assert scene.image.dtype == np.uint8
    assert (scene.mask == MASK_CLASSES.index("drivable")).all()


def test_a_mask_saved_as_grey_with_three_channels_is_read(folders: tuple[Path, Path]) -> None:
    write(folders[1] / "a.png", np.repeat(numbers(1, 2)[..., None], 3, axis=2))
    assert MaskFolderDataset(*folders, NUMBERS)[0].mask.max() == MASK_CLASSES.index("lane")


@pytest.mark.parametrize(("folder", "kind"), [("masks", "mask"), ("images", "picture")])
def test_a_missing_partner_is_refused(folders: tuple[Path, Path], folder: str, kind: str) -> None:
    next((folders[0].parent / folder).glob("a.*")).unlink()
    with pytest.raises(InputError, match=f"1 of 2 files have no {kind}"):
        MaskFolderDataset(*folders, NUMBERS)


def test_missing_and_empty_folders_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no folder"):
        MaskFolderDataset(tmp_path / "gone", folders[1], NUMBERS)
    with pytest.raises(InputError, match="no picture"):
        MaskFolderDataset(folders[0], tmp_path / "empty", NUMBERS)
    with pytest.raises(InputError, match="leftImg8bit"):
        MaskFolderDataset(*folders, CITYSCAPES)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (numbers(0, 5), "class number 5"),
        (np.zeros((10, 30), np.uint8), "10x30"),
        (np.dstack([numbers(1), numbers(2), numbers(0)]), "in colour"),
    ],
)
def test_a_wrong_mask_is_refused_in_one_line(
    folders: tuple[Path, Path], mask: np.ndarray, message: str
) -> None:
    write(folders[1] / "a.png", mask)
    with pytest.raises(InputError, match=message) as caught:
        MaskFolderDataset(*folders, NUMBERS)[0]
    assert "\n" not in str(caught.value)


def test_an_unknown_colour_is_refused(folders: tuple[Path, Path]) -> None:
    colours = MaskFormat(classes={(0, 0, 0): "background"})
    write(folders[1] / "a.png", np.full((20, 30, 3), (1, 2, 255), np.uint8))
    with pytest.raises(InputError, match="#ff0201"):
        MaskFolderDataset(*folders, colours)[0]
    write(folders[1] / "a.png", numbers(0))
    with pytest.raises(InputError, match="not in 8-bit colour"):
        MaskFolderDataset(*folders, colours)[0]


def test_a_corrupt_mask_is_refused(folders: tuple[Path, Path]) -> None:
    (folders[1] / "a.png").write_bytes(b"\x89PNG broken")
    with pytest.raises(InputError, match="corrupt"):
        MaskFolderDataset(*folders, NUMBERS)[0]


def test_two_pictures_of_one_name_are_refused(folders: tuple[Path, Path]) -> None:
    write(folders[0] / "a.png", picture())
    with pytest.raises(InputError, match="share a name"):
        MaskFolderDataset(*folders, NUMBERS)


@pytest.mark.parametrize("classes", [{0: "road"}, {}, {0: "background", (1, 2, 3): "lane"}])
def test_a_wrong_format_is_refused(classes: dict) -> None:
    with pytest.raises(InputError):
        MaskFormat(classes=classes)


def test_an_index_outside_is_refused(folders: tuple[Path, Path]) -> None:
    with pytest.raises(IndexError):
        MaskFolderDataset(*folders, NUMBERS)[2]
