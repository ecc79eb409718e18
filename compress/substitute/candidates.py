"""Operators that have a cheaper stand-in."""

from dataclasses import dataclass
from typing import Any

from torch import nn

ATTENTION = frozenset(
    {"SqueezeExcite", "SEModule", "SqueezeExcitation", "EffectiveSEModule", "SEBlock", "SELayer"}
)
ACTIVATIONS = {
    "silu": frozenset({"SiLU", "Swish", "SwishMe", "SwishJit"}),
    "hard-swish": frozenset({"Hardswish", "HardSwish", "HardSwishJit", "HardSwishMe"}),
    "gelu": frozenset({"GELU", "GELUTanh", "QuickGELU"}),
    "prelu": frozenset({"PReLU"}),
}
"""Kinds of activations that a ReLU replaces, with the classes of PyTorch, torchvision and timm."""
SQUEEZE_EXCITE = "squeeze-excite"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """All operators of one kind in a network.

    Attributes:
        kind: a key of `ACTIVATIONS`, or `SQUEEZE_EXCITE`.
        modules: their names.
        by: what takes their place: "relu" or "identity".
    """

    kind: str
    modules: tuple[str, ...]
    by: str

    def edits(self) -> list[dict[str, Any]]:
        """Returns the structural edits that replace them, see `artifacts.edits`."""
        return [{"kind": "replace", "module": name, "by": self.by} for name in self.modules]


def find_candidates(module: nn.Module) -> list[Candidate]:
    """Returns the kinds of operators in a network that have a stand-in.

    Squeeze-and-excite is removed as a whole, so activations inside of it do not count. Modules are
    told by the name of their class; `find_called` lists activations that are called as functions.
    A module that several others have in common (one SiLU for all layers, as in YOLO) is named in
    each of them, since an edit replaces it in one.
    """
    found: dict[str, list[str]] = {}
    removed: list[str] = []
    places: set[tuple[int, str]] = set()
    for name, part in module.named_modules(remove_duplicate=False):
        if any(name.startswith(f"{outer}.") for outer in removed):
            continue
        kind = kind_of(part)
        if kind == SQUEEZE_EXCITE:
            removed.append(name)
        owner, _, leaf = name.rpartition(".")
        place = (id(module.get_submodule(owner)), leaf)
        if kind is not None and name and place not in places:
            places.add(place)
            found.setdefault(kind, []).append(name)
    return [
        Candidate(
            kind=kind,
            modules=tuple(names),
            by="identity" if kind == SQUEEZE_EXCITE else "relu",
        )
        for kind, names in found.items()
    ]


def kind_of(part: nn.Module) -> str | None:
    """Returns the kind of an operator, told by its class; None where it has no stand-in."""
    name = type(part).__name__
    if name in ATTENTION:
        return SQUEEZE_EXCITE
    return next((kind for kind, classes in ACTIVATIONS.items() if name in classes), None)
