"""The file of `--quality`: what each head was worth before and is worth now."""

from pathlib import Path
from typing import Any

from artifacts.errors import InputError
from artifacts.file_content import read_text
from artifacts.strict_json import read_json
from latency_budget.verdict import HeadQuality


def read_quality(path: Path) -> dict[str, HeadQuality]:
    """Reads each head's quality.

    Args:
        path: JSON, `{"detection": {"metric": "mAP50", "reference": 0.67, "candidate": 0.66}}`.

    Raises:
        InputError: the file cannot be read or is of another form.
    """
    expected = '{"HEAD": {"metric": "mAP50", "reference": 0.67, "candidate": 0.66}}'
    try:
        return {
            str(head): HeadQuality(
                str(values["metric"]), _number(values["reference"]), _number(values["candidate"])
            )
            for head, values in read_json(read_text(path)).items()
        }
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", expected) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is not a quality file: {error!r}", expected) from error


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return float(value)
