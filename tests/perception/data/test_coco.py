import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from artifacts.errors import InputError
from perception.data.coco import CocoDataset
from perception.scene.sample import BOX_CLASSES, IGNORE_INDEX


def content() -> dict[str, Any]:
    return {
        "categories": [
            {"id": 7, "name": "car"},
            {"id": 9, "name": "person"},
            {"id": 3, "name": "cat"},
        ],
        "images": [
            {"id": 10, "file_name": "b.png", "width": 60, "height": 40},
            {"id": 11, "file_name": "deep/a.png"},
        ],
        "annotations": [
            {"image_id": 10, "category_id": 7, "bbox": [5, 6, 20, 10]},
            {"image_id": 10, "category_id": 9, "bbox": [50.5, 30, 30, 30.5], "iscrowd": 0},
            {"image_id": 10, "category_id": 9, "bbox": [1, 1, 5, 5], "iscrowd": 1},
            {"image_id": 10, "category_id": 3, "bbox": [1, 1, 5, 5]},
            {"image_id": 10, "category_id": 7, "bbox": [3, 3, 0, 5]},
            {"image_id": 10, "category_id": 7, "bbox": [70, 3, 5, 5]},
        ],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    cv2.imwrite(str(tmp_path / "b.png"), np.zeros((40, 60, 3), np.uint8))
    cv2.imwrite(str(tmp_path / "deep/a.png"), np.zeros((30, 30), np.uint16))
    return tmp_path


def open_with(folder: Path, values: Any) -> CocoDataset:
    path = folder / "labels.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return CocoDataset(folder, path)


def test_boxes_and_labels_are_read(folder: Path) -> None:
    dataset = open_with(folder, content())
    scene = dataset[0]
    assert len(dataset) == len(list(dataset)) == 2
    assert scene.boxes.tolist() == [[5, 6, 25, 16], [50.5, 30, 60, 40]]
    assert [BOX_CLASSES[label] for label in scene.labels] == ["car", "pedestrian"]
    assert (scene.mask == IGNORE_INDEX).all()
    assert np.isnan(scene.depth).all()


def test_a_picture_without_objects_has_no_boxes(folder: Path) -> None:
    scene = open_with(folder, content())[1]
    assert scene.image.shape == (30, 30, 3)
    assert scene.boxes.shape == (0, 4)
    assert scene.labels.shape == (0,)


def test_own_category_names_can_be_given(folder: Path) -> None:
    (folder / "labels.json").write_text(json.dumps(content()))
    scene = CocoDataset(folder, folder / "labels.json", {"cat": "truck"})[0]
    assert [BOX_CLASSES[label] for label in scene.labels] == ["truck"]


def drop(key: str) -> Callable[[dict], None]:
    return lambda values: values.pop(key)


def put(part: str, index: int, **entries: Any) -> Callable[[dict], None]:
    return lambda values: values[part][index].update(entries)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("images"), "images"),
        (drop("categories"), "categories"),
        (put("annotations", 0, image_id=99), "unknown image_id 99"),
        (put("annotations", 0, category_id=99), "unknown category_id 99"),
        (put("annotations", 0, category_id="car"), "category_id"),
        (put("annotations", 0, bbox=[1, 2, 3]), "bbox"),
        (put("annotations", 0, bbox=[1, 2, -3, 4]), "at least 0"),
        (put("annotations", 0, bbox=[1, 2, float("nan"), 4]), "bbox"),
        (put("annotations", 0, bbox=None), "bbox"),
        (put("images", 0, file_name="gone.png"), "gone.png"),
        (put("images", 0, file_name="../b.png"), "leaves the folder"),
        (put("images", 0, file_name="/etc/passwd"), "leaves the folder"),
        (put("images", 0, file_name=5), "file_name"),
        (put("images", 1, id=10), "twice"),
        (put("categories", 0, name=None), "no name"),
        (lambda values: values.update(images=[]), "no picture"),
        (lambda values: values.update(annotations={"a": 1}), "annotations"),
        (lambda values: values.update(categories=[{"id": 7, "name": "cat"}]), "cat"),
    ],
)
def test_wrong_annotations_are_refused_in_one_line(
    folder: Path, change: Callable[[dict], None], message: str
) -> None:
    values = content()
    change(values)
    with pytest.raises(InputError, match=message) as caught:
        open_with(folder, values)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["{", "[1, 2]", "", "null", "[" * 100_000])
def test_what_is_no_annotation_file_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"labels\.json"):
        open_with(folder, text)


def test_bytes_that_are_no_text_are_refused(folder: Path) -> None:
    (folder / "labels.json").write_bytes(b"\x80\x81\xff\x00" * 10)
    with pytest.raises(InputError, match="not JSON"):
        CocoDataset(folder, folder / "labels.json")


def test_missing_folder_and_file_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="no folder"):
        CocoDataset(folder / "gone", folder / "labels.json")
    with pytest.raises(InputError, match=r"gone\.json"):
        CocoDataset(folder, folder / "gone.json")


def test_another_size_than_announced_is_refused(folder: Path) -> None:
    values = content()
    values["images"][0]["width"] = 61
    with pytest.raises(InputError, match="40x60"):
        open_with(folder, values)[0]


def test_an_unknown_target_class_is_refused(folder: Path) -> None:
    (folder / "labels.json").write_text(json.dumps(content()))
    with pytest.raises(InputError, match="lorry"):
        CocoDataset(folder, folder / "labels.json", {"car": "lorry"})


def test_an_index_outside_is_refused(folder: Path) -> None:
    with pytest.raises(IndexError):
        open_with(folder, content())[2]
