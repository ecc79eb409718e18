import cv2
import numpy as np
import pytest

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from perception.evaluate import evaluate_heads, evaluate_outputs
from perception.heads.assignment import BoxAssignment
from perception.heads.depth import LogInverseDepth
from perception.heads.segmentation import MaskFractions
from perception.scene.dataset import SceneDataset

HEADS = {
    "detection": {
        "outputs": [
            f"detection_{kind}_{s}" for s in (8, 16) for kind in ("class", "box", "centre")
        ],
        "strides": [8, 16],
        "classes": ["car", "truck", "pedestrian"],
    },
    "segmentation": {
        "outputs": ["segmentation"],
        "classes": ["background", "sidewalk", "drivable", "lane", "vehicle", "pedestrian"],
        "stride": 4,
    },
    "depth": {"outputs": ["depth"], "stride": 4},
}
SCENES = SceneDataset(4, 11, 192, 320)


def perfect_outputs(scene):
    """What a network that knew the labels would say."""
    outputs = {}
    targets = BoxAssignment().encode(scene, 1.0)
    for stride in (8, 16):
        classes = targets[f"class_{stride}"]
        logits = np.where(np.arange(3)[:, None, None] == classes, 8.0, -8.0)
        outputs[f"detection_class_{stride}"] = logits[None].astype(np.float32)
        outputs[f"detection_box_{stride}"] = np.log(targets[f"box_{stride}"])[None]
        outputs[f"detection_centre_{stride}"] = np.full((1, 1, *classes.shape), 8.0, np.float32)
    outputs["segmentation"] = MaskFractions().encode(scene, 1.0)["fractions"][None]
    log_inverse = LogInverseDepth().encode(scene, 1.0)["log_inverse_depth"]
    outputs["depth"] = np.nan_to_num(log_inverse, nan=-5.0)[None, None]
    return outputs


def predict_labels(scenes, damage=lambda outputs: outputs):
    remaining = iter(scenes)
    return lambda image: damage(perfect_outputs(next(remaining)))


def test_knowing_the_labels_gives_nearly_perfect_figures():
    figures = evaluate_outputs(predict_labels(SCENES), SCENES, InputSpec(), HEADS)
    assert figures["detection"]["metric"] == "mAP50"
    assert figures["detection"]["value"] > 0.9
    assert figures["segmentation"]["value"] > 0.75
    assert figures["depth"]["value"] < 0.05


def test_a_damaged_head_scores_worse_and_leaves_the_others_alone():
    def damage(outputs):
        return {**outputs, "depth": outputs["depth"] + 0.5}

    whole = evaluate_outputs(predict_labels(SCENES), SCENES, InputSpec(), HEADS)
    hurt = evaluate_outputs(predict_labels(SCENES, damage), SCENES, InputSpec(), HEADS)
    assert hurt["depth"]["value"] > whole["depth"]["value"] + 0.2
    assert hurt["detection"] == whole["detection"]
    assert hurt["segmentation"] == whole["segmentation"]


def test_scenes_of_another_size_are_measured_in_the_inputs_pixels():
    def predict(image):
        assert image.shape == (1, 3, 96, 160)
        return next(outputs)

    outputs = iter([perfect_outputs(SceneDataset(1, 11, 96, 160)[0]) for _ in range(1)])
    large = SceneDataset(1, 11, 96, 160)[0]
    doubled = type(large)(
        image=cv2.resize(large.image, (320, 192)),
        boxes=large.boxes * 2,
        labels=large.labels,
        mask=cv2.resize(large.mask, (320, 192), interpolation=cv2.INTER_NEAREST),
        depth=cv2.resize(large.depth, (320, 192), interpolation=cv2.INTER_NEAREST),
    )
    figures = evaluate_heads(predict, [doubled], InputSpec(), HEADS, size=(96, 160))
    assert figures["detection"]["mAP50"] > 0.9


def test_only_the_heads_in_the_metadata_are_measured():
    head = {"depth": HEADS["depth"]}
    assert set(evaluate_outputs(predict_labels(SCENES), SCENES, InputSpec(), head)) == {"depth"}


def test_an_unknown_head_and_a_letterbox_of_another_size_are_refused():
    with pytest.raises(InputError, match="lidar"):
        evaluate_outputs(predict_labels(SCENES), SCENES, InputSpec(), {"lidar": {}})
    with pytest.raises(InputError, match="letterbox"):
        evaluate_outputs(
            predict_labels(SCENES), SCENES, InputSpec(resize="letterbox"), HEADS, size=(64, 64)
        )


def test_progress_counts_the_scenes():
    seen = []
    evaluate_outputs(
        predict_labels(SCENES),
        SCENES,
        InputSpec(),
        {"depth": HEADS["depth"]},
        progress=lambda what, done, total: seen.append((done, total)),
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
