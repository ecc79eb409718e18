"""Pictures unlike the calibration samples, made from them, to see what happens beyond the ranges.

Ranges that fit the calibration pictures clip whatever goes beyond, and a layer that hardly costs
anything on those pictures can cost most of the error on others. What layers cost on the negatives
foretold that best among ten ways to alter pictures (`benchmarks/unlike_pictures.py`, figures in
docs/quantization.md).
"""

from collections.abc import Sequence

import numpy as np

from artifacts.synthetic_pictures import PICTURE_RANK
from compress.quantize.graph import Array


def make_negatives(samples: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
    """Returns the samples with their pictures turned into negatives, within the same range.

    Args:
        samples: input arrays by name; those of 4 dimensions and float type are pictures.

    Returns:
        as many samples; none where there is no picture.
    """
    names = [
        name
        for name, value in samples[0].items()
        if value.ndim == PICTURE_RANK and np.issubdtype(value.dtype, np.floating)
    ]
    if not names:
        return []
    ends = {
        name: min(float(sample[name].min()) for sample in samples)
        + max(float(sample[name].max()) for sample in samples)
        for name in names
    }
    return [
        sample | {name: (ends[name] - sample[name]).astype(sample[name].dtype) for name in names}
        for sample in samples
    ]
