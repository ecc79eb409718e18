"""The arrays that one run of a network takes, checked before a runtime sees them."""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError


def check_names(known: Collection[str], given: Iterable[str]) -> None:
    """Checks that every given array belongs to an input.

    Raises:
        InputError: one does not.
    """
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(f"input '{unknown[0]}' is not one of the network's", ", ".join(known))


def check_array(
    name: str, array: object, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Checks the array of one input.

    Args:
        name: of the input.
        array: what was given for it; None for nothing.
        shape: of the input; 0 where any size will do.
        dtype: of the input.

    Returns:
        the array, C-contiguous, also one without axes; not copied where it already is.

    Raises:
        InputError: it is missing, not an array, or of another shape or dtype.
    """
    if array is None or not isinstance(array, np.ndarray):
        what = "missing" if array is None else f"a {type(array).__name__}"
        dims = ", ".join(str(size) for size in shape)
        raise InputError(f"input '{name}' is {what}", f"a numpy array {dtype} [{dims}]")
    if array.dtype != dtype:
        raise InputError(f"input '{name}' is {array.dtype}", str(dtype))
    if array.shape != shape and not fits_shape(array.shape, shape):
        raise InputError(f"input '{name}' has the shape {list(array.shape)}", str(list(shape)))
    return np.ascontiguousarray(array).reshape(array.shape)


def fits_shape(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a shape is the wanted one, of whose sizes those that are 0 are open."""
    return len(given) == len(wanted) and all(
        size in (0, got) for size, got in zip(wanted, given, strict=True)
    )
