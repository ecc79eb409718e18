"""Which weights a network cannot be pruned with, and what is said of them."""

from torch import nn

from artifacts.errors import InputError
from artifacts.wording import name_some

_MOST_NAMES = 3


def require_full_precision(module: nn.Module) -> None:
    """Checks that a network can be run on samples in float32 or float64.

    Raises:
        InputError: it has parameters in float16, bfloat16 or another narrow type.
    """
    for name, value in module.named_parameters():
        if value.is_floating_point() and value.itemsize < 4:
            kind = str(value.dtype).removeprefix("torch.")
            raise InputError(
                f"the weights of the network are {kind} ({name})",
                "a network that computes in float32",
                "call float() on it where it is built",
            )


def explain_nan(module: nn.Module) -> InputError:
    """Returns the error for a network whose outputs are NaN."""
    values = (*module.named_parameters(), *module.named_buffers())
    names = [name for name, value in values if bool(value.isnan().any())]
    if names:
        return InputError(
            f"weights of the network are NaN: {name_some(names, _MOST_NAMES)}",
            "numbers",
            "take weights from before its training diverged",
        )
    return InputError(
        "outputs of the network are NaN",
        "numbers, or pruning cannot be proven",
        "look for divisions by zero, and for logarithms and roots of negative numbers",
    )
