"""JSON whose objects name each key once: a second value would silently replace the first."""

import json
from collections import Counter
from typing import Any


def read_json(text: str | bytes) -> Any:
    """Returns the content of a JSON text.

    Raises:
        ValueError: it is no JSON, or a key appears twice in an object.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        name = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key '{name[:80]}' appears twice")
    return values
