"""Names of a network's modules that a user gives."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from artifacts.errors import InputError
from artifacts.wording import name_some

if TYPE_CHECKING:
    from torch import nn

_NAMED = 8


def require_modules(module: "nn.Module", names: Iterable[str], whose: str = "network") -> None:
    """Refuses names that no part of a network has; the network is not run for it.

    Args:
        module: the network.
        names: of modules, as in its `named_modules()`.
        whose: "network", "student" or the like.

    Raises:
        InputError: with the names that are most like the first of the unknown, or else those of
            the network's own parts.
    """
    known = dict(module.named_modules())
    unknown = [name for name in names if name not in known]
    if unknown:
        close = get_close_matches(unknown[0], known)
        parts = close or [name for name, _ in module.named_children()]
        raise InputError(
            f"the {whose} has no module '{unknown[0]}'",
            "a name of its named_modules(), such as " + name_some(parts, _NAMED),
        )
