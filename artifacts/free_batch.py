"""Networks whose batch size is free, as exporters like to write them.

A camera gives one picture at a time, and every measurement here is one of that: where the batch is
all that is free, it is 1. An axis of points or boxes is no batch, so only inputs with as many axes
as pictures have are taken to have one, and those beside them whose first axis has the same name (a
pose [N, 6] of a picture [N, 3, 360, 640]).
"""

from collections.abc import Mapping, Sequence

LEAST_AXES = 4


def has_free_batch(dims: Sequence[int]) -> bool:
    """Tells whether the batch, and nothing else, of an input is free.

    Args:
        dims: its shape, the batch first; what is free is 0 or negative.
    """
    return len(dims) >= LEAST_AXES and dims[0] <= 0 and min(dims[1:]) > 0


def find_batches(shapes: Mapping[str, Sequence[int | str | None]]) -> frozenset[str]:
    """Returns the inputs of which the batch, and nothing else, is free.

    Args:
        shapes: of all inputs of a network, by name; what is free is a name, None, 0 or negative.
    """
    sizes = {key: [_size(dim) for dim in dims] for key, dims in shapes.items()}
    pictures = frozenset(key for key, dims in sizes.items() if dims and has_free_batch(dims))
    names = {shapes[key][0] for key in pictures}
    beside = {
        key
        for key, dims in sizes.items()
        if dims and isinstance(shapes[key][0], str) and shapes[key][0] in names - {""}
        if all(size > 0 for size in dims[1:])
    }
    return pictures | beside


def _size(dim: int | str | None) -> int:
    return dim if isinstance(dim, int) else 0
