"""The flag of a frame that was never processed, in every form in which files hold it."""

from typing import Any

_TRUE, _FALSE = ("1", "true", "yes"), ("0", "false", "no", "")


def read_dropped(value: Any) -> bool:
    """Returns whether a frame was dropped; one that leaves the flag out was not.

    numpy and JSON may hold the flag as a float.

    Raises:
        ValueError: with the word that it is.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    word = "" if value is None else str(value).strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError(repr(word))
    return word in _TRUE
