"""Checks of single values of a budget file, whose errors name the key, the value and its unit."""

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from artifacts.errors import InputError


def check_table(source: str, key: str, value: Any) -> Mapping[str, Any]:
    """Returns a table of the file."""
    if not isinstance(value, Mapping):
        raise InputError(f"{source}: {key} = {value!r}", f"a table, written as [{key}]")
    return value


def check_number(
    source: str,
    key: str,
    value: Any,
    *,
    unit: str,
    high: float,
    low: float = 0.0,
    zero: bool = False,
) -> float:
    """Returns a limit as a float; the error of a wrong one hints at its unit."""
    shown = f"{source}: {key} = {value!r}"
    expected = f"a number above 0{f' in {unit}' if unit else ''}"
    if isinstance(value, str):
        raise InputError(shown, expected, "write it without quotes")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(shown, expected)
    if not _is_finite(value) or value < 0 or (value == 0 and not zero):
        raise InputError(shown, expected.replace("above 0", "of 0 or more") if zero else expected)
    if 0 < value < low:
        hints = {"ms": f"is it in seconds? then write {value * 1000:g}"}
        raise InputError(shown, f"{expected}, at least {low:g}", hints.get(unit, ""))
    if value > high:
        hints = {"ms": f"is it in µs or ns? {value:g} µs are {value / 1000:g} ms"}
        raise InputError(shown, f"{expected}, at most {high:g}", hints.get(unit, ""))
    return float(value)


def _is_finite(value: float) -> bool:
    """Returns whether a float holds it: a whole number of TOML may have any number of digits."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_count(source: str, key: str, value: Any, *, low: int, high: int | None = None) -> int:
    """Returns a whole number of at least `low` and at most `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{source}: {key} = {value!r}", f"a whole number of {low} or more")
    if high is not None and value > high:
        raise InputError(f"{source}: {key} = {value!r}", f"a whole number of at most {high}")
    return value


def check_confidence(source: str, key: str, value: Any) -> float:
    """Returns a number between 0.5 and 1; a percentage and a chance of error are pointed out."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0.5 <= value < 1:
        return float(value)
    hint = ""
    if is_number and 1 < value < 100:
        hint = f"is it in percent? then write {value / 100:g}"
    elif is_number and 0 < value < 0.5:
        hint = f"is it the chance of an error? then write {1 - value:g}"
    raise InputError(f"{source}: {key} = {value!r}", "a number between 0.5 and 1", hint)


def check_choice(source: str, key: str, value: Any, choices: tuple[str, ...]) -> str:
    """Returns one of a few words."""
    if value not in choices:
        raise InputError(f"{source}: {key} = {value!r}", " or ".join(f'"{c}"' for c in choices))
    return str(value)


def refuse_unknown(source: str, prefix: str, values: Mapping[str, Any], known: set[str]) -> None:
    """Refuses a table with a key that is not known, naming the nearest one."""
    for name in values:
        if name not in known:
            raise InputError(
                f"{source}: unknown key '{prefix}{name}'",
                f"one of {', '.join(sorted(known))}",
                name_nearest(name, known),
            )


def name_nearest(name: str, known: Iterable[str], *, cutoff: float = 0.4) -> str:
    """Returns "did you mean 'x'?", or nothing where no known name is near.

    Args:
        name: as it was written.
        known: the names that it may stand for.
        cutoff: how alike they must be, from 0 to 1; upper and lower case count as equal.
    """
    lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=cutoff)
    return f"did you mean '{lower[found[0]]}'?" if found else ""
