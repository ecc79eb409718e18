"""Decodes a network's raw outputs into boxes, a class mask and a depth map; numpy only.

Metrics, demo and vehicle use this one decode, so a figure of quality is the quality that drives.
Values that are not finite (a damaged engine, an FP16 overflow) never stop the frame: a location
that holds one gives no detection, and they are counted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError

Outputs = Mapping[str, NDArray[Any]]

MIN_DEPTH_M = 0.5
MAX_DEPTH_M = 200.0
LARGEST_BOX_LOGIT = 8.0
SMALLEST_UNION_PX2 = 1e-6


@dataclass(frozen=True)
class Detections:
    """The objects found in one picture, best first.

    Attributes:
        boxes: [N, 4] float32, x1, y1, x2, y2 in pixels of the network's input, clipped to it.
        scores: [N] float32 in 0..1.
        labels: [N] int64, index into the head's classes.
        non_finite: number of NaN and infinite values among the head's outputs.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    labels: NDArray[np.int64]
    non_finite: int = 0

    def __len__(self) -> int:
        return len(self.scores)


def decode_detections(
    outputs: Outputs,
    head: Mapping[str, Any],
    *,
    score_threshold: float = 0.3,
    iou_threshold: float = 0.5,
    max_detections: int = 100,
    max_candidates: int = 300,
) -> Detections:
    """Decodes anchor-free detection outputs (FCOS, Tian et al. 2019).

    A location (x, y) of stride s stands at ((x + 0.5) s, (y + 0.5) s); its box reaches exp(b) s to
    the left, top, right and bottom; its score is sqrt(sigmoid(class) sigmoid(centre)). The work
    is bounded whatever the network says: only the best `max_candidates` enter the suppression.

    Args:
        outputs: raw outputs by name, each [1, C, H, W]; only the first picture is decoded.
        head: `{"outputs": [...], "strides": [...], "classes": [...]}`; per stride s it names one
            output ending in `_class_s` [classes], `_box_s` [4: l, t, r, b] and `_centre_s` [1].
        score_threshold: lowest score kept.
        iou_threshold: a box that overlaps a better one of its class by more is dropped.
        max_detections: most detections returned.
        max_candidates: most boxes, over all classes, that enter the suppression.

    Returns:
        The detections, best first.

    Raises:
        InputError: an output that the head names is missing.
    """
    levels = [_decode_level(outputs, head, stride, score_threshold) for stride in head["strides"]]
    boxes = np.concatenate([level[0] for level in levels])
    scores = np.concatenate([level[1] for level in levels])
    labels = np.concatenate([level[2] for level in levels])
    non_finite = sum(level[3] for level in levels)
    order = _best_first(scores, max_candidates)
    boxes, scores, labels = boxes[order], scores[order], labels[order]
    kept = suppress_overlaps(boxes, labels, iou_threshold, max_detections)
    return Detections(boxes[kept], scores[kept], labels[kept], non_finite)


def suppress_overlaps(
    boxes: NDArray[np.float32],
    labels: NDArray[np.int64],
    iou_threshold: float,
    max_kept: int,
) -> NDArray[np.int64]:
    """Drops each box that overlaps a better kept box of its own class (greedy NMS).

    Args:
        boxes: [N, 4] x1, y1, x2, y2, best first.
        labels: [N] class of each box.
        iou_threshold: overlap (intersection over union) above which the worse box is dropped.
        max_kept: most boxes kept.

    Returns:
        [K] int64 indices of the boxes kept, best first.
    """
    suppresses = pairwise_iou(boxes, boxes) > iou_threshold
    suppresses &= labels[:, None] == labels[None, :]
    is_dropped = np.zeros(len(boxes), bool)
    kept: list[int] = []
    for index in range(len(boxes)):
        if is_dropped[index]:
            continue
        if len(kept) == max_kept:
            break
        kept.append(index)
        is_dropped |= suppresses[index]
    return np.asarray(kept, np.int64)


def pairwise_iou(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the intersection over union of each pair of boxes.

    Args:
        first: [N, 4] x1, y1, x2, y2.
        second: [M, 4] x1, y1, x2, y2.

    Returns:
        [N, M] in 0..1; boxes without area overlap nothing.
    """
    ax1, ay1, ax2, ay2 = np.asarray(first, np.float32).T[:, :, None]
    bx1, by1, bx2, by2 = np.asarray(second, np.float32).T[:, None, :]
    shared = np.minimum(ax2, bx2) - np.maximum(ax1, bx1)
    np.maximum(shared, 0, out=shared)
    shared_height = np.minimum(ay2, by2) - np.maximum(ay1, by1)
    np.maximum(shared_height, 0, out=shared_height)
    shared *= shared_height
    union = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - shared
    np.maximum(union, SMALLEST_UNION_PX2, out=union)
    shared /= union
    return np.asarray(shared, np.float32)


def decode_segmentation(outputs: Outputs, head: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Returns the likeliest class of each location, as argmax over the logits would.

    NaN never wins; a location of nothing else is class 0.

    Args:
        outputs: raw outputs by name; the head's is [1, classes, H, W] logits.
        head: `{"outputs": ["segmentation"], ...}`.

    Returns:
        [H, W] uint8 class indices at the output's own resolution.

    Raises:
        InputError: the output that the head names is missing.
    """
    logits = _find_output(outputs, head["outputs"][0])
    best = np.full(logits.shape[1:], -np.inf, np.float32)
    mask = np.zeros(logits.shape[1:], np.uint8)
    for label, plane in enumerate(logits):
        np.putmask(mask, plane > best, label)
        np.fmax(best, plane, out=best)
    return mask


def decode_depth(outputs: Outputs, head: Mapping[str, Any]) -> NDArray[np.float32]:
    """Returns the distance along the optical axis, from log(inverse depth in 1/m).

    Args:
        outputs: raw outputs by name; the head's is [1, 1, H, W].
        head: `{"outputs": ["depth"], ...}`.

    Returns:
        [H, W] float32 metres in 0.5..200 at the output's own resolution; 200 where it is NaN.

    Raises:
        InputError: the output that the head names is missing.
    """
    log_inverse = _find_output(outputs, head["outputs"][0])[0]
    bounded = np.fmax(log_inverse, np.float32(-math.log(MAX_DEPTH_M)))
    np.fmin(bounded, np.float32(-math.log(MIN_DEPTH_M)), out=bounded)
    np.negative(bounded, out=bounded)
    depth: NDArray[np.float32] = np.exp(bounded, out=bounded)
    return np.clip(depth, MIN_DEPTH_M, MAX_DEPTH_M, out=depth)


def count_non_finite(arrays: Sequence[NDArray[Any]]) -> int:
    """Returns how many values of the arrays are NaN or infinite."""
    return sum(array.size - int(np.count_nonzero(np.isfinite(array))) for array in arrays)


def _decode_level(
    outputs: Outputs, head: Mapping[str, Any], stride: int, score_threshold: float
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64], int]:
    """Returns boxes, scores, labels and the count of non-finite values of one stride."""
    classes = _find_level_output(outputs, head, "class", stride)
    boxes = _find_level_output(outputs, head, "box", stride)
    centre = _find_level_output(outputs, head, "centre", stride)
    height, width = classes.shape[1:]
    non_finite = count_non_finite((classes, boxes, centre))
    # sigmoid(centre) <= 1, so a class logit below this cannot reach the threshold.
    labels, places = np.nonzero(
        classes.reshape(len(classes), -1) >= _logit(max(score_threshold, 0.0) ** 2)
    )
    class_logits = classes.reshape(len(classes), -1)[labels, places]
    centre_logits = centre.reshape(-1)[places]
    distances = boxes.reshape(4, -1)[:, places]
    with np.errstate(invalid="ignore"):
        scores = np.sqrt(_sigmoid(class_logits) * _sigmoid(centre_logits))
    is_kept = scores >= score_threshold
    if non_finite:
        is_kept &= np.isfinite(class_logits) & np.isfinite(centre_logits)
        is_kept &= np.isfinite(distances).all(axis=0)
    scores, labels, places = scores[is_kept], labels[is_kept], places[is_kept]
    reach = np.exp(np.minimum(distances[:, is_kept], LARGEST_BOX_LOGIT)) * np.float32(stride)
    xs = (places % width + np.float32(0.5)).astype(np.float32) * np.float32(stride)
    ys = (places // width + np.float32(0.5)).astype(np.float32) * np.float32(stride)
    corners = np.stack([xs - reach[0], ys - reach[1], xs + reach[2], ys + reach[3]], axis=1)
    limits = np.asarray([width, height, width, height], np.float32) * np.float32(stride)
    return np.clip(corners, 0, limits), scores, labels.astype(np.int64), non_finite


def _best_first(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Returns the indices of the `count` highest scores, best first, ties in their order."""
    if len(scores) > count:
        chosen = np.sort(np.argpartition(scores, len(scores) - count)[len(scores) - count :])
    else:
        chosen = np.arange(len(scores))
    return np.asarray(chosen[np.argsort(-scores[chosen], kind="stable")], np.int64)


def _find_level_output(
    outputs: Outputs, head: Mapping[str, Any], kind: str, stride: int
) -> NDArray[np.float32]:
    suffix = f"{kind}_{stride}"
    for name in head["outputs"]:
        if name == suffix or name.endswith("_" + suffix):
            return _find_output(outputs, name)
    raise InputError(
        f"the head's outputs {list(head['outputs'])} have none for '{suffix}'",
        f"a name ending in '_{suffix}'",
    )


def _find_output(outputs: Outputs, name: str) -> NDArray[np.float32]:
    """Returns an output of the first picture, [C, H, W] float32."""
    if name not in outputs:
        raise InputError(
            f"the network has no output '{name}'",
            f"the outputs its heads name; it has {', '.join(sorted(outputs)) or 'none'}",
        )
    return np.asarray(outputs[name][0], np.float32)


def _sigmoid(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns 1 / (1 + exp(-x)) without overflow for any x."""
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * logits), np.float32)


def _logit(probability: float) -> float:
    if probability <= 0:
        return -math.inf
    return math.inf if probability >= 1 else math.log(probability / (1 - probability))
