"""Sets of channels that leave together."""

import numpy as np

from compress.prune.analysis.channel_sets import join_sets


def test_joining_leaves_the_sets_before_as_they_are() -> None:
    """A trial that comes to nothing must not tie channels for the ones after it."""
    before = np.arange(5)
    assert join_sets(before, np.array([0, 3]), np.array([1, 4])).tolist() == [0, 0, 2, 3, 3]
    assert before.tolist() == [0, 1, 2, 3, 4]
