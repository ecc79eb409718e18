"""Names of a network's modules that a user gives."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from artifacts.errors import InputError
from artifacts.wording import suggest_names

if TYPE_CHECKING:
    from torch import nn


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
    known = [name for name, _ in module.named_modules()]
    unknown = [name for name in names if name not in known]
    if unknown:
        parts = [name for name, _ in module.named_children()]
        raise InputError(
            f"the {whose} has no module '{unknown[0]}'",
            "a name of its named_modules(), such as " + suggest_names(unknown[0], known, parts),
        )
