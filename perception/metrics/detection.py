"""Mean average precision of boxes, as COCO computes it (Lin et al., 2014)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InconclusiveError, InputError
from perception.frame.decode import pairwise_iou

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0.0, 1.0, 101)


class MeanAveragePrecision:
    """Collects detections picture by picture.

    Args:
        classes: names of the classes.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)
        self._scores: list[list[NDArray[np.float64]]] = [[] for _ in classes]
        self._hits: list[list[NDArray[np.bool_]]] = [[] for _ in classes]
        self._true_counts = np.zeros(len(classes), np.int64)

    def update(
        self,
        boxes: NDArray[np.float32],
        scores: NDArray[np.float32],
        labels: NDArray[np.int64],
        true_boxes: NDArray[np.float32],
        true_labels: NDArray[np.int64],
    ) -> None:
        """Adds one picture.

        Args:
            boxes: [N, 4] detected x1, y1, x2, y2 in pixels.
            scores: [N], higher is surer.
            labels: [N] class indices.
            true_boxes: [M, 4].
            true_labels: [M].

        Raises:
            InputError: the arrays' lengths differ.
        """
        if len(boxes) != len(scores) or len(boxes) != len(labels):
            raise InputError(
                f"{len(boxes)} boxes, {len(scores)} scores, {len(labels)} labels", "equally many"
            )
        if len(true_boxes) != len(true_labels):
            raise InputError(
                f"{len(true_boxes)} true boxes and {len(true_labels)} labels", "equally many"
            )
        for index in range(len(self.classes)):
            chosen = np.flatnonzero(labels == index)
            chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
            true = true_boxes[true_labels == index]
            self._scores[index].append(scores[chosen].astype(np.float64))
            self._hits[index].append(match_boxes(boxes[chosen], true, IOU_THRESHOLDS))
            self._true_counts[index] += len(true)

    def compute(self) -> dict[str, float]:
        """Returns `mAP50`, `mAP50:95` and `AP50 <class>` of each class that was there.

        Raises:
            InconclusiveError: there was no true box at all.
        """
        present = np.flatnonzero(self._true_counts)
        if not len(present):
            raise InconclusiveError(
                "mean average precision of pictures without any object", "at least one true box"
            )
        precisions = np.array([self._precisions(int(index)) for index in present])
        figures = {
            "mAP50": float(precisions[:, 0].mean()),
            "mAP50:95": float(precisions.mean()),
        }
        for row, index in enumerate(present):
            figures[f"AP50 {self.classes[index]}"] = float(precisions[row, 0])
        return figures

    def _precisions(self, index: int) -> NDArray[np.float64]:
        """Returns the average precision of one class at each IoU threshold."""
        order = np.argsort(-np.concatenate(self._scores[index]), kind="stable")
        hits = np.concatenate(self._hits[index], axis=1)[:, order]
        total = int(self._true_counts[index])
        return np.array([average_precision(row, total) for row in hits])


def match_boxes(
    boxes: NDArray[np.float32], true_boxes: NDArray[np.float32], thresholds: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Matches detections of one class in one picture, the best first.

    Args:
        boxes: [N, 4], by falling score.
        true_boxes: [M, 4].
        thresholds: [T] lowest IoU of a match.

    Returns:
        [T, N]: whether the detection found a true box that no better detection had taken.
    """
    hits = np.zeros((len(thresholds), len(boxes)), bool)
    if not len(boxes) or not len(true_boxes):
        return hits
    overlaps = pairwise_iou(boxes, true_boxes)
    for row, threshold in enumerate(thresholds):
        free = np.ones(len(true_boxes), bool)
        for column, overlap in enumerate(overlaps):
            best = int(np.argmax(np.where(free, overlap, -1.0)))
            if free[best] and overlap[best] >= threshold:
                free[best] = False
                hits[row, column] = True
    return hits


def average_precision(hits: NDArray[np.bool_], true_count: int) -> float:
    """Returns the mean precision at 101 recalls, each the best at that recall or a higher one.

    Args:
        hits: [N] whether each detection is right, by falling score.
        true_count: number of true boxes, above 0.
    """
    found = np.cumsum(hits)
    recall = found / true_count
    precision = found / np.arange(1, len(hits) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, RECALLS, side="left")
    return float(np.append(envelope, 0.0)[places].mean())
