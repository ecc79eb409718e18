"""Runs a user's network, and says what was wrong where it fails."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError, first_line

if TYPE_CHECKING:
    from torch import Tensor, nn

_ABOUT_SHAPES = re.compile(r"shape|size|dimension|channels|too small|multiplied", re.IGNORECASE)
_ABOUT_DTYPES = re.compile(r"dtype|\bdouble\b", re.IGNORECASE)
_IN_HALVES = re.compile(r"\b(Half|BFloat16)\b")
_ABOUT_ARGUMENTS = re.compile(r"positional argument|indices must be integers|required argument")


@contextmanager
def evaluation_mode(module: "nn.Module") -> Iterator[None]:
    """Puts every part of a module into evaluation mode for the block.

    What `torch.export` gives back has no modes, and refuses to be asked for one.
    """
    if "eval" in vars(module):
        yield
        return
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def run_module(module: "nn.Module", inputs: "tuple[Tensor, ...]") -> Any:
    """Runs a network.

    Raises:
        InputError: it fails; the first line says how.
    """
    try:
        return module(*inputs)
    except Exception as error:
        raise explain_failure(error, inputs) from error


def explain_failure(error: Exception, inputs: "tuple[Tensor, ...]") -> InputError:
    """Returns the error for a network that failed with these arguments."""
    reason = f"{type(error).__name__}: {first_line(error)}"
    shapes = [list(value.shape) for value in inputs]
    if isinstance(error, TypeError) and _ABOUT_ARGUMENTS.search(reason):
        return InputError(
            f"the forward pass failed with {len(inputs)} tensors as its arguments: {reason}",
            "a forward that takes one tensor for each input",
            "name each with --input-shape; build a module around a network that takes a dictionary",
        )
    if _ABOUT_SHAPES.search(reason):
        return InputError(
            f"the forward pass failed with inputs of {shapes}: {reason}",
            "the shape it was trained with",
            "give it with --input-shape",
        )
    if _IN_HALVES.search(reason):
        return InputError(
            f"the forward pass failed: {reason}",
            "a network that computes in float32",
            "call float() on it where it is built",
        )
    is_wide = any(str(value.dtype) == "torch.float64" for value in inputs)
    return InputError(
        f"the forward pass failed: {reason}",
        fix="pruning runs it in float64; give tensors made in forward the dtype of its input"
        if is_wide and _ABOUT_DTYPES.search(reason)
        else "",
    )


def explain_gradient(error: Exception, other_way: str = "") -> InputError:
    """Returns the error for a network whose gradient autograd could not compute.

    Args:
        error: what it raised.
        other_way: what the user may do instead of changing the network.
    """
    return InputError(
        f"the network's gradients cannot be computed: {first_line(error)}",
        "a forward pass that autograd can follow",
        "leave out operators in place (ReLU(inplace=True), +=) on what is read again" + other_way,
    )
