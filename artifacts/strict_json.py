"""JSON whose objects name each key once: a second value would silently replace the first.

Its whole numbers fit into a float, as nobody asks each of them whether it does.
"""

import json
from collections import Counter
from typing import Any

_MOST_DIGITS = 300


def read_json(text: str | bytes) -> Any:
    """Returns the content of a JSON text.

    Raises:
        ValueError: it is no JSON, a key appears twice in an object, or a whole number is beyond any
            float.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_unique, parse_int=_whole)


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits: {digits[:20]}…")
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        name = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key '{name[:80]}' appears twice")
    return values
