"""What a checkpoint holds beside its weights, checked.

Torch is not imported here.
"""

from typing import Any

from artifacts.dropped_objects import holds_dropped
from artifacts.errors import InputError, UnsafeFileError
from artifacts.wrapped_weights import find_weights

SHAPES_KEY, ASSUMED_KEY = "shapes", "is_spec_assumed"
"""Not in checkpoints of perception, and not in older ones."""


def check_fields(content: dict[str, Any], label: str) -> None:
    """Checks the values that every checkpoint has.

    Args:
        content: the checkpoint's.
        label: the file's name, for the error.

    Raises:
        UnsafeFileError: there are Python objects among them.
        InputError: one is of another type.
    """
    if holds_dropped(content):
        raise UnsafeFileError(
            f"checkpoint {label} holds Python objects beside its weights",
            "plain values and tensors alone",
        )
    for key, kind in (("builder", str), ("config", dict), ("edits", list), ("input_spec", dict)):
        if not isinstance(content[key], kind):
            raise InputError(
                f"'{key}' of checkpoint {label} is {type(content[key]).__name__}", kind.__name__
            )
    if not find_weights(content["state_dict"]):
        raise InputError(f"'state_dict' of checkpoint {label}", "a dictionary of tensors")


def read_shapes(content: Any, label: str) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the inputs that a checkpoint states.

    Args:
        content: what it has under `SHAPES_KEY`.
        label: the file's name, for the error.

    Raises:
        InputError: it is something else.
    """
    is_valid = isinstance(content, dict) and all(
        isinstance(name, str)
        and isinstance(shape, list)
        and all(type(size) is int and size > 0 for size in shape)
        for name, shape in content.items()
    )
    if not is_valid:
        raise InputError(
            f"'{SHAPES_KEY}' of checkpoint {label} is {content!r:.60}", "a shape for each input"
        )
    return {name: tuple(shape) for name, shape in content.items()}
