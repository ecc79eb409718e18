"""Whether `framefit fit` goes on with a distillation that was interrupted.

Pruning to a latency measures, so that a second run would take out other channels, which the state
of the interrupted distillation does not fit. The network that was pruned is kept for it instead.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from artifacts.atomic import write_json
from artifacts.file_content import read_text


def can_go_on(pruned: Path, state: Path, origin: Mapping[str, Any]) -> bool:
    """Returns whether a pruned network and the state of its distillation are of this origin.

    A state of another origin is deleted: nothing could go on from it.

    Args:
        pruned: the network that is distilled.
        state: of the distillation.
        origin: what the pruned network is made of, as `note_origin` wrote it.
    """
    if pruned.exists() and state.exists() and _read_origin(pruned) == origin:
        return True
    state.unlink(missing_ok=True)
    return False


def note_origin(pruned: Path, origin: Mapping[str, Any]) -> None:
    """Writes what a pruned network is made of beside it."""
    write_json(_origin_file(pruned), dict(origin))


def _read_origin(pruned: Path) -> Any:
    try:
        return json.loads(read_text(_origin_file(pruned)))
    except (OSError, ValueError):
        return None


def _origin_file(pruned: Path) -> Path:
    return pruned.with_suffix(".json")
