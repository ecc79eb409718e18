"""TOML of bounded depth: a key of a hundred thousand parts takes the parser gigabytes."""

import re
import tomllib
from typing import Any

MOST_PARTS = 16
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MOST_PARTS}}}")


def read_toml(text: str) -> dict[str, Any]:
    """Returns the content of a TOML text.

    Raises:
        ValueError: it is no TOML, or a key has more than `MOST_PARTS` parts.
        RecursionError: its values are nested too deeply.
    """
    found = _LONG_KEY.search(text)
    if found:
        raise ValueError(f"the key '{found[0][:20]}…' has more than {MOST_PARTS} parts")
    return tomllib.loads(text)
