"""The shell around the packages: command line, demo, workspace, and what Python programs call.

`framefit.quantize(module, loader)` and its siblings are those of `framefit.api`; they are imported
when they are first asked for, since the command line shall start fast.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

_FOLDER = str(Path(__file__).resolve().parents[1])
sys.path.insert(0, _FOLDER)
try:
    from artifacts.own_packages import put_first
finally:
    sys.path.remove(_FOLDER)
put_first()

if TYPE_CHECKING:
    from compress.distill.settings import DistillSettings
    from compress.prune.select import WidthLimits
    from compress.prune.settings import PruneSettings
    from compress.quantize.settings import QuantizeSettings
    from compress.train.settings import TrainerSettings
    from framefit.api import compare, distill, export, prune, quantize, save
    from framefit.prune_goal import PruneGoal

_HOMES = {
    "compare": "framefit.api",
    "distill": "framefit.api",
    "export": "framefit.api",
    "prune": "framefit.api",
    "quantize": "framefit.api",
    "save": "framefit.api",
    "DistillSettings": "compress.distill.settings",
    "PruneGoal": "framefit.prune_goal",
    "PruneSettings": "compress.prune.settings",
    "QuantizeSettings": "compress.quantize.settings",
    "TrainerSettings": "compress.train.settings",
    "WidthLimits": "compress.prune.select",
}

__all__ = [
    "DistillSettings",
    "PruneGoal",
    "PruneSettings",
    "QuantizeSettings",
    "TrainerSettings",
    "WidthLimits",
    "compare",
    "distill",
    "export",
    "prune",
    "quantize",
    "save",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'framefit' has no attribute '{name}'")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        from artifacts.errors import find_missing_extra

        raise find_missing_extra(error, f"framefit.{name}") or error from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
