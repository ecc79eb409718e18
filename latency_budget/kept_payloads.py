"""Do the stages leave the frames as they are? Payloads come again, so a change would add up."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from latency_budget.environment import Check

_LOOKED_AT = 16
"""Parts of a payload: one for each camera, not each of a thousand points."""


def digest_payload(payload: Any) -> tuple[int, ...]:
    """Returns checksums of an array, or of those in a tuple, list or mapping; none of others."""
    parts: Iterable[Any] = (payload,)
    if isinstance(payload, Mapping):
        parts = payload.values()
    elif isinstance(payload, tuple | list):
        parts = payload
    return tuple(
        zlib.crc32(part.tobytes())
        for part in islice(parts, _LOOKED_AT)
        if isinstance(part, np.ndarray) and not part.dtype.hasobject
    )


def check_payloads(before: Sequence[object], after: Sequence[object]) -> list[Check]:
    """Warns of payloads that have changed while they were used.

    Args:
        before: digests of the first payloads.
        after: of the same ones, after the first frames.
    """
    pairs = list(zip(before, after, strict=True))
    changed = sum(old != new for old, new in pairs)
    if not changed:
        return []
    detail = (
        f"stages wrote into {changed} of the first {len(pairs)}, which are other frames when they "
        "come again: copy a payload before it is changed"
    )
    return [Check("payloads", "warn", detail)]
