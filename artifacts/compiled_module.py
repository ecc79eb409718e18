"""Networks that `torch.compile` returned: the same network behind another call."""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import nn

Module = TypeVar("Module", bound="nn.Module")
_INNER = "_orig_mod"


def without_compiler(module: Module) -> Module:
    """Returns the network that was compiled, or one that was not as it is.

    Its layers are the same objects. Compiled code calls no hooks of theirs, and is compiled again
    for each new width.
    """
    inner: Module = getattr(module, "_modules", {}).get(_INNER, module)
    return inner
