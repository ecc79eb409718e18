"""Quality of every head on labelled scenes, for a module or any engine's session."""

from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from perception.frame.decode import decode_depth, decode_detections, decode_segmentation
from perception.metrics.depth import DepthError
from perception.metrics.detection import MeanAveragePrecision
from perception.metrics.segmentation import MeanIoU
from perception.scene.sample import Scene

Predict = Callable[[NDArray[np.float32]], Mapping[str, NDArray[Any]]]
"""Runs the network: [1, 3, H, W] in, raw outputs by name out."""

HEADLINES = {"detection": "mAP50", "segmentation": "mIoU", "depth": "abs_rel"}
LOWEST_SCORE = 0.05
"""Detections below it are left out of the precision-recall curve."""


def evaluate_outputs(
    predict: Predict,
    scenes: Iterable[Scene],
    spec: InputSpec,
    heads_metadata: Mapping[str, Any],
    *,
    size: tuple[int, int] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Returns the headline figure of each head.

    Args:
        predict: runs the network on one picture.
        scenes: labelled pictures.
        spec: how pixels become the network's input.
        heads_metadata: as stored in the artifact, see `PerceptionNetwork.heads_metadata`.
        size: height and width of the network's input; None takes each scene's own.
        progress: told what is done, how many scenes, of how many (0: not known).

    Returns:
        `{"detection": {"metric": "mAP50", "value": …}, …}` for the heads in the metadata.
    """
    figures = evaluate_heads(predict, scenes, spec, heads_metadata, size=size, progress=progress)
    return {
        head: {"metric": HEADLINES[head], "value": values[HEADLINES[head]]}
        for head, values in figures.items()
    }


def evaluate_heads(
    predict: Predict,
    scenes: Iterable[Scene],
    spec: InputSpec,
    heads_metadata: Mapping[str, Any],
    *,
    size: tuple[int, int] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, dict[str, float]]:
    """Returns all figures of each head, per class where there are classes.

    Masks and depths are compared at the scene's full resolution: each cell of the output counts
    for all pixels it covers. Arguments and their meaning are those of `evaluate_outputs`.

    Raises:
        InputError: a head without a metric, or a size that does not fit the input spec.
    """
    meters = {name: _METERS[name](head) for name, head in _known(heads_metadata).items()}
    total = len(scenes) if isinstance(scenes, Sized) else 0
    for index, scene in enumerate(scenes):
        height, width = size or scene.mask.shape
        if spec.resize != "stretch" and (height, width) != scene.mask.shape:
            raise InputError(
                f"scenes of {scene.mask.shape} for a letterboxed {height}x{width} input",
                "scenes of the input's size",
            )
        outputs = predict(spec.prepare(scene.image, height, width)[None])
        for meter in meters.values():
            meter.update(outputs, scene, (height, width))
        if progress is not None:
            progress("evaluate", index + 1, total)
    return {name: meter.compute() for name, meter in meters.items()}


def _known(heads_metadata: Mapping[str, Any]) -> dict[str, Any]:
    for name in heads_metadata:
        if name not in _METERS:
            raise InputError(f"no metric for the head '{name}'", f"one of {', '.join(_METERS)}")
    return dict(heads_metadata)


class _DetectionMeter:
    def __init__(self, head: Mapping[str, Any]) -> None:
        self.head = head
        self.metric = MeanAveragePrecision(head["classes"])

    def update(
        self, outputs: Mapping[str, NDArray[Any]], scene: Scene, size: tuple[int, int]
    ) -> None:
        found = decode_detections(outputs, self.head, score_threshold=LOWEST_SCORE)
        rows, columns = scene.mask.shape
        factor = np.array([size[1] / columns, size[0] / rows] * 2, np.float32)
        self.metric.update(
            found.boxes, found.scores, found.labels, scene.boxes * factor, scene.labels
        )

    def compute(self) -> dict[str, float]:
        return self.metric.compute()


class _SegmentationMeter:
    def __init__(self, head: Mapping[str, Any]) -> None:
        self.head = head
        self.metric = MeanIoU(head["classes"])

    def update(
        self, outputs: Mapping[str, NDArray[Any]], scene: Scene, size: tuple[int, int]
    ) -> None:
        mask = decode_segmentation(outputs, self.head)
        self.metric.update(_enlarge(mask, scene), scene.mask)

    def compute(self) -> dict[str, float]:
        return self.metric.compute()


class _DepthMeter:
    def __init__(self, head: Mapping[str, Any]) -> None:
        self.head = head
        self.metric = DepthError()

    def update(
        self, outputs: Mapping[str, NDArray[Any]], scene: Scene, size: tuple[int, int]
    ) -> None:
        depth = decode_depth(outputs, self.head)
        self.metric.update(_enlarge(depth, scene), scene.depth)

    def compute(self) -> dict[str, float]:
        return self.metric.compute()


_METERS: dict[str, type[_DetectionMeter | _SegmentationMeter | _DepthMeter]] = {
    "detection": _DetectionMeter,
    "segmentation": _SegmentationMeter,
    "depth": _DepthMeter,
}


def _enlarge(cells: NDArray[Any], scene: Scene) -> NDArray[Any]:
    """Repeats the cells of an output over the pixels of the scene that they cover."""
    height, width = scene.mask.shape
    return np.asarray(cv2.resize(cells, (width, height), interpolation=cv2.INTER_NEAREST))
