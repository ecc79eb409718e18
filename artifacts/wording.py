"""Words that messages of several packages share."""

from collections.abc import Sequence


def name_some(names: Sequence[str], most: int) -> str:
    """Returns the first names and how many there are besides: "a, b and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
