"""Framefit's packages beside a user's modules of the same names.

They are called `export`, `engines`, `perception`, as files and packages of a user's may be too.
Ours are found where this file lies, whatever stands first on Python's path; a user's are found
while the module that the user named is imported.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

OUR_PACKAGES = (
    "artifacts",
    "perception",
    "compress",
    "export",
    "engines",
    "latency_budget",
    "framefit",
)
_ROOT = Path(__file__).resolve().parents[1]


class _Beside:
    """Finds our packages in the folder that holds them all."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns where one of our packages is; None for all other modules."""
        if path is not None or name not in OUR_PACKAGES:
            return None
        return PathFinder.find_spec(name, [str(_ROOT)], target)


def put_first() -> None:
    """Has our packages found before anything on Python's path that is called like them."""
    if _Beside not in sys.meta_path:
        sys.meta_path.insert(0, _Beside)


@contextmanager
def modules_of(folder: Path) -> Iterator[None]:
    """Has imports in this block find a folder's modules first, those called like ours too.

    Ours are back when the block ends; what was imported in it keeps what it got.
    """
    taken = {name for name in OUR_PACKAGES if _has_another(folder, name)}
    ours = {name: module for name, module in sys.modules.items() if _root(name) in taken}
    finders, is_added = list(sys.meta_path), str(folder) not in sys.path
    for name in ours:
        del sys.modules[name]
    if taken and _Beside in finders:
        sys.meta_path.remove(_Beside)
    if is_added:
        sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if is_added:
            sys.path.remove(str(folder))
        sys.meta_path[:] = finders
        for name in taken:
            sys.modules.pop(name, None)
        sys.modules.update(ours)


def _root(name: str) -> str:
    return name.partition(".")[0]


def _has_another(folder: Path, name: str) -> bool:
    spec = PathFinder.find_spec(name, [str(folder)])
    if spec is None or spec.origin is None:
        return False
    return not Path(spec.origin).resolve().is_relative_to(_ROOT / name)
