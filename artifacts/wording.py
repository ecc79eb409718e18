"""Words that messages of several packages share."""

from collections.abc import Sequence
from difflib import get_close_matches

_MOST_SUGGESTED = 8


def name_some(names: Sequence[str], most: int) -> str:
    """Returns the first names and how many there are besides: "a, b and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def count_of(count: int, noun: str) -> str:
    """Returns a number with its noun: "1 layer", "3 layers"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def suggest_names(wrong: str, known: Sequence[str], otherwise: Sequence[str]) -> str:
    """Returns the known names that are most like a wrong one, or else the first of `otherwise`."""
    return name_some(get_close_matches(wrong, known) or otherwise, _MOST_SUGGESTED)
