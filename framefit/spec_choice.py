"""Decides how pixels become tensors: the artifact's word, else framefit.toml's, else the user's."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec

OPTION_NAMES = {
    "color": "--color",
    "pixel_scale": "--pixel-scale",
    "mean": "--mean",
    "std": "--std",
    "resize": "--resize",
}
_RELATIVE_TOLERANCE = 1e-6
_PICTURE_AXES = 4


def choose_spec(
    stored: InputSpec | None,
    configured: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    channels: int = 3,
) -> tuple[InputSpec, str]:
    """Chooses the input spec of a model.

    Args:
        stored: the spec that the model carries.
        configured: values of framefit.toml.
        given: values of the command line's options; None stands for not given.
        channels: of the network's input, for the defaults, see `count_channels`.

    Returns:
        the spec, and a warning where nothing at all said what it is ("" otherwise).

    Raises:
        InputError: an option or framefit.toml contradicts the stored spec, or each other.
    """
    options = {name: value for name, value in given.items() if value is not None}
    if stored is not None:
        _refuse_contradiction(stored, options, "the option", "the model")
        _refuse_contradiction(stored, configured, "framefit.toml", "the model")
        return stored, ""
    if configured:
        known = InputSpec.from_dict({**_defaults(channels), **configured})
        in_both = {name: value for name, value in options.items() if name in configured}
        _refuse_contradiction(known, in_both, "the option", "framefit.toml")
    spec = InputSpec.from_dict({**_defaults(channels), **configured, **options})
    if configured or options:
        return spec, ""
    return spec, (
        "nothing says how pixels become the input: taking RGB, 1/255, stretch. If the network was "
        "trained otherwise, give --color, --pixel-scale, --mean, --std, --resize or framefit.toml"
    )


def count_channels(shapes: Mapping[str, Sequence[int]]) -> int:
    """Returns how many channels the spec of a network is about: 1 where its pictures are grey.

    Args:
        shapes: of its inputs by name, states left out.
    """
    pictures = [shape[1::2] for shape in shapes.values() if len(shape) == _PICTURE_AXES]
    is_grey = bool(pictures) and all(1 in ends and 3 not in ends for ends in pictures)
    return 1 if is_grey else 3


def parse_numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    """Reads an option such as `--mean 0.485,0.456,0.406`.

    Raises:
        InputError: it is not a list of numbers.
    """
    if text is None:
        return None
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError as error:
        raise InputError(f"{option} is '{text}'", "numbers such as 0.485,0.456,0.406") from error


def _defaults(channels: int) -> dict[str, Any]:
    return {"mean": (0.0,) * channels, "std": (1.0,) * channels}


def _refuse_contradiction(
    spec: InputSpec, values: Mapping[str, Any], source: str, authority: str
) -> None:
    ours = asdict(spec)
    for name, value in values.items():
        if not _is_same(ours[name], value):
            raise InputError(
                f"{source} says {OPTION_NAMES[name]} {_show(value)}, but {authority} says "
                f"{_show(ours[name])}",
                "the same",
                f"leave {OPTION_NAMES[name]} out",
            )


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return bool(left == right)
    lefts = left if isinstance(left, tuple | list) else (left,)
    rights = right if isinstance(right, tuple | list) else (right,)
    return len(lefts) == len(rights) and all(
        abs(a - b) <= _RELATIVE_TOLERANCE * max(abs(a), abs(b))
        for a, b in zip(lefts, rights, strict=True)
    )


def _show(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(f"{item:g}" for item in value)
    return value if isinstance(value, str) else f"{value:.8g}"
