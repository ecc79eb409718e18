"""How figures and names are written, the same in every report."""

import unicodedata
from typing import Any

SYMBOLS = {"pass": "✓", "fail": "✗", "inconclusive": "?", "invalid": "!", "ok": "✓", "warn": "△"}
VERDICT_SENTENCES = {
    "pass": "{name} keeps its {what} budget of {limit} ms",
    "fail": "{name} breaks its {what} budget of {limit} ms",
    "inconclusive": "It is not proven that {name} keeps its {what} budget of {limit} ms",
    "invalid": "Nothing can be said about {name}: the samples or the machine were unfit",
}


def plain(text: object) -> str:
    """Returns a name on one line: control and direction characters become `�`.

    Names come from files that others wrote; a line break in one could forge a line of a CI log.
    """
    return "".join(
        "�" if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") else character
        for character in str(text)
    )


def format_ms(value: float | None, digits: int = 2) -> str:
    """Returns milliseconds without their unit, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def format_size(size_bytes: int) -> str:
    """Returns a file's size in MB or kB, or a dash where there is no file."""
    if not size_bytes:
        return "–"
    if size_bytes >= 1_000_000:
        return f"{size_bytes / 1e6:.2f} MB"
    return f"{size_bytes / 1e3:.1f} kB"


def format_value(value: Any) -> str:
    """Returns a head's quality, or a dash."""
    return f"{value:.4f}" if isinstance(value, int | float) else "–"


def format_change(reference: Any, value: Any) -> str:
    """Returns a signed difference, or nothing where there is none to show."""
    if not isinstance(reference, int | float) or not isinstance(value, int | float):
        return ""
    return f"{value - reference:+.4f}".replace("-", "−")


def format_ratio(reference: float | None, value: float | None) -> str:
    """Returns reference / value as `2.31x`, or a dash."""
    return f"{reference / value:.2f}x" if reference and value else "–"
