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
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise InputError(shown, expected.replace("above 0", "of 0 or more") if zero else expected)
    if 0 < value < low:
        hints = {"ms": f"is it in seconds? then write {value * 1000:g}"}
        raise InputError(shown, f"{expected}, at least {low:g}", hints.get(unit, ""))
    if value > high:
        hints = {"ms": f"is it in µs or ns? {value:g} µs are {value / 1000:g} ms"}
        raise InputError(shown, f"{expected}, at most {high:g}", hints.get(unit, ""))
    return float(value)


def check_count(source: str, key: str, value: Any, *, low: int) -> int:
    """Returns a whole number of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{source}: {key} = {value!r}", f"a whole number of {low} or more")
    return value


def check_share(source: str, key: str, value: Any) -> float:
    """Returns a number strictly between 0 and 1; a percentage is pointed out."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        hint = ""
        if isinstance(value, int | float) and 1 < value < 100:
            hint = f"is it in percent? then write {value / 100:g}"
        raise InputError(f"{source}: {key} = {value!r}", "a number between 0 and 1", hint)
    return float(value)


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


def name_nearest(name: str, known: Iterable[str]) -> str:
    """Returns "did you mean 'x'?", or nothing where no known name is near."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.4)
    return f"did you mean '{found[0]}'?" if found else ""
