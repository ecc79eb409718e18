"""The file of `--quality`: what each head was worth before and is worth now."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from artifacts.errors import InputError
from artifacts.file_content import read_text
from artifacts.strict_json import read_json
from latency_budget.budget import HeadContract
from latency_budget.budget_values import name_nearest
from latency_budget.verdict import HeadQuality

_SCALES_APART = 50
"""A share and a percentage of one thing differ by a hundred; no change of a network is as large."""


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


def require_plausible(
    path: Path, quality: Mapping[str, HeadQuality], contracts: Mapping[str, HeadContract]
) -> None:
    """Refuses a quality that no contract reads, and percentages that stand for shares.

    Args:
        path: the quality file, for the errors.
        quality: what it holds.
        contracts: of the budget, those of heads that a driving mode switches off included.

    Raises:
        InputError: a contract would hold whatever the network is worth.
    """
    if quality and contracts and not set(quality) & set(contracts):
        head = next(iter(quality))
        raise InputError(
            f"{path} names no head of the budget, but {', '.join(quality)}",
            ", ".join(contracts),
            name_nearest(head, contracts),
        )
    for head, contract in contracts.items():
        found = quality.get(head)
        if found is not None and found.metric == contract.metric:
            _require_one_scale(path, head, found, contract)
            _require_bite(head, found, contract)


def _require_one_scale(path: Path, head: str, found: HeadQuality, contract: HeadContract) -> None:
    """Only what would pass is refused: a metric that became that much worse fails by itself."""
    is_better = (found.candidate < found.reference) == contract.lower_is_better
    low, high = sorted((found.reference, found.candidate))
    if is_better and 0 <= low <= 1 < high and high > _SCALES_APART * low:
        raise InputError(
            f"{path}: {found.metric} of {head} was {found.reference:g} and is {found.candidate:g}",
            "both as shares or both in percent",
        )


def _require_bite(head: str, found: HeadQuality, contract: HeadContract) -> None:
    """Refuses a drop that even a score of 0 keeps; errors may rise by any number of pixels."""
    is_positive = found.reference >= 0 and found.candidate >= 0
    if contract.lower_is_better or not is_positive:
        return
    if contract.max_drop >= max(1.0, found.reference):
        is_share = found.reference <= 1 and found.candidate <= 1
        raise InputError(
            f"heads.{head}.max_drop = {contract.max_drop:g} of the budget allows everything: "
            f"{found.metric} is {found.reference:g}{', a share of 1' if is_share else ''}",
            f"a drop below {max(1.0, found.reference):g}",
            f"is it in percent? then write {contract.max_drop / 100:g}" if is_share else "",
        )


def describe_unread(
    quality: Mapping[str, HeadQuality], contracts: Mapping[str, HeadContract]
) -> list[str]:
    """Returns notes on heads that no contract judges, and on errors that may become anything."""
    notes = []
    unread = [head for head in quality if head not in contracts]
    if unread:
        notes.append(f"Without a contract in the budget, so not judged: head {', '.join(unread)}.")
    for head, contract in contracts.items():
        found = quality.get(head)
        if found is None or contract.max_drop < 1 or not 0 <= found.reference <= 1:
            continue
        if contract.lower_is_better:
            most = found.reference + contract.max_drop
            notes.append(
                f"heads.{head}.max_drop = {contract.max_drop:g} lets {found.metric} rise from "
                f"{found.reference:g} to {most:g}; is it in percent?"
            )
    return notes
