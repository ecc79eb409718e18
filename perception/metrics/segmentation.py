"""Mean intersection over union of class masks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InconclusiveError, InputError
from perception.scene.sample import IGNORE_INDEX


class MeanIoU:
    """Collects a confusion matrix picture by picture.

    Args:
        classes: names of the classes.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)
        self._confusion = np.zeros((len(classes), len(classes)), np.int64)

    def update(self, mask: NDArray[np.uint8], true_mask: NDArray[np.uint8]) -> None:
        """Adds one picture.

        Args:
            mask: [H, W] predicted class indices.
            true_mask: [H, W]; `IGNORE_INDEX` is left out.

        Raises:
            InputError: the sizes differ, or an index is no class.
        """
        if mask.shape != true_mask.shape:
            raise InputError(f"masks of {mask.shape} and {true_mask.shape}", "equal sizes")
        count = len(self.classes)
        known = true_mask != IGNORE_INDEX
        predicted, true = mask[known].astype(np.int64), true_mask[known].astype(np.int64)
        if predicted.size and max(predicted.max(), true.max()) >= count:
            raise InputError(
                f"class {max(predicted.max(), true.max())} in a mask", f"classes below {count}"
            )
        pairs = np.bincount(true * count + predicted, minlength=count * count)
        self._confusion += pairs.reshape(count, count)

    def compute(self) -> dict[str, float]:
        """Returns `mIoU` and `IoU <class>` of each class that was there or was predicted.

        Raises:
            InconclusiveError: no pixel was known.
        """
        shared = np.diag(self._confusion)
        union = self._confusion.sum(0) + self._confusion.sum(1) - shared
        present = np.flatnonzero(union)
        if not len(present):
            raise InconclusiveError("mean IoU of no known pixel", "at least one labelled pixel")
        overlaps = shared[present] / union[present]
        figures = {"mIoU": float(overlaps.mean())}
        for overlap, index in zip(overlaps, present, strict=True):
            figures[f"IoU {self.classes[index]}"] = float(overlap)
        return figures
