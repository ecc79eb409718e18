"""What a module has to be given."""

from inspect import Parameter, signature
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def list_needed(module: "nn.Module") -> list[str]:
    """Returns the names of the arguments that a module cannot do without, in order."""
    arguments = signature(module.forward).parameters.values()
    needed = (one for one in arguments if one.default is one.empty and one.kind in _BY_PLACE)
    return [one.name for one in needed]
