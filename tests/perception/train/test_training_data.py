import json

import cv2
import numpy as np
import pytest

from artifacts.errors import InputError
from framefit.cli import main
from perception.scene.dataset import SceneDataset
from perception.training_data import HELD_OUT_SEED, picture_data, resize_scene, road_data

CATEGORY = {"car": 1, "truck": 2, "pedestrian": 3}
SHORT = [
    *("--steps", "1", "--batch-size", "2", "--replicas", "1", "--half-share", "0"),
    *("--height", "128", "--width", "160", "--backbone", "test_resnet"),
]


@pytest.fixture
def pictures(tmp_path):
    """Twelve rendered pictures as a user would bring them: COCO boxes, CamVid masks."""
    images, masks = tmp_path / "images", tmp_path / "masks"
    images.mkdir()
    masks.mkdir()
    entries, annotations = [], []
    for number, scene in enumerate(SceneDataset(12, 5, 96, 160)):
        cv2.imwrite(str(images / f"{number:03}.png"), scene.image)
        cv2.imwrite(str(masks / f"{number:03}.png"), np.where(scene.mask == 2, 3, 0))
        entries.append({"id": number, "file_name": f"{number:03}.png", "height": 96, "width": 160})
        for box, label in zip(scene.boxes.tolist(), scene.labels.tolist(), strict=True):
            x, y, right, bottom = box
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": number,
                    "category_id": label + 1,
                    "bbox": [x, y, right - x, bottom - y],
                }
            )
    categories = [{"id": number, "name": name} for name, number in CATEGORY.items()]
    content = {"images": entries, "annotations": annotations, "categories": categories}
    (tmp_path / "boxes.json").write_text(json.dumps(content))
    return tmp_path


def test_rendered_training_and_held_out_scenes_differ():
    data = road_data(3, 1, 3)
    first, other = data.training(96, 160)[0], data.held_out(96, 160)[0]
    assert not np.array_equal(first.image, other.image)
    with pytest.raises(InputError, match="held-out"):
        road_data(3, HELD_OUT_SEED, 3)


def test_each_tenth_own_picture_is_held_out(pictures):
    data = picture_data(
        pictures / "images", annotations=pictures / "boxes.json", masks=None, mask_format="camvid"
    )
    assert data.heads == ("detection",)
    assert len(data.training(64, 96)) == 11
    held_out = list(data.held_out(96, 160))
    assert len(held_out) == 1
    assert np.array_equal(held_out[0].image, cv2.imread(str(pictures / "images" / "009.png")))


def test_masks_train_segmentation(pictures):
    data = picture_data(
        pictures / "images", annotations=None, masks=pictures / "masks", mask_format="camvid"
    )
    assert data.heads == ("segmentation",)
    scene = data.training(48, 80)[0]
    assert scene.image.shape == (48, 80, 3)
    assert set(np.unique(scene.mask)) <= {0, 2}


def test_resizing_moves_boxes_with_the_picture():
    scene = SceneDataset(1, 5, 96, 160)[0]
    small = resize_scene(scene, 48, 80)
    assert np.allclose(small.boxes * 2, scene.boxes)
    assert small.depth.shape == small.mask.shape == (48, 80)
    assert set(np.unique(small.mask)) <= set(np.unique(scene.mask))


@pytest.mark.parametrize("labels", [[], ["--annotations", "boxes.json", "--masks", "masks"]])
def test_both_or_neither_kind_of_label_is_refused(pictures, capsys, labels):
    paths = [str(pictures / part) if "." in part or part == "masks" else part for part in labels]
    out = pictures / "own.pt"
    arguments = ["train", "--out", str(out), "--images", str(pictures / "images"), *paths, *SHORT]
    assert main(arguments) == 2
    assert "--annotations" in capsys.readouterr().err


def test_own_pictures_with_masks_train_a_network(pictures, run_train):
    images, masks = pictures / "images", pictures / "masks"
    arguments = ["--images", images, "--masks", masks, "--mask-format", "camvid"]
    printed = run_train("--out", pictures / "own.pt", *arguments, *SHORT)
    assert "IoU drivable" in printed


def test_a_head_without_labels_is_refused(pictures):
    images, masks = str(pictures / "images"), str(pictures / "masks")
    arguments = ["--images", images, "--masks", masks, "--mask-format", "camvid", "--head", "depth"]
    assert main(["train", "--out", str(pictures / "own.pt"), *arguments, *SHORT]) == 2
