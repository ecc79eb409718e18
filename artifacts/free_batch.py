"""Networks whose batch size is free, as exporters like to write them.

A camera gives one picture at a time, and every measurement here is one of that: where the batch is
all that is free, it is 1. An axis of points or boxes is no batch, so only inputs with as many axes
as pictures have are taken to have one.
"""

from collections.abc import Sequence

LEAST_AXES = 4


def has_free_batch(dims: Sequence[int]) -> bool:
    """Tells whether the batch, and nothing else, of an input is free.

    Args:
        dims: its shape, the batch first; what is free is 0 or negative.
    """
    return len(dims) >= LEAST_AXES and dims[0] <= 0 and min(dims[1:]) > 0


def take_one_sample(dims: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape with a batch of 1 where that is all that is free."""
    return (1, *dims[1:]) if has_free_batch(dims) else tuple(dims)
