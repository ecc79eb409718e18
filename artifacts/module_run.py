"""Runs a user's network, and says what was wrong where it fails."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError, first_line

if TYPE_CHECKING:
    from torch import Tensor, nn

_ABOUT_SHAPES = re.compile(r"shape|size|dimension|channels|too small|multiplied", re.IGNORECASE)
_ABOUT_DTYPES = re.compile(r"dtype|\bdouble\b", re.IGNORECASE)
_IN_DOUBLES = re.compile(r"\b[Dd]ouble\b")
_ABOUT_BYTES = re.compile(r"\bByte\b")
_IN_HALVES = re.compile(r"\b(Half|BFloat16)(Tensor)?\b")
_ABOUT_ARGUMENTS = re.compile(
    r"positional argument|indices must be integers|required (keyword-only )?argument"
)
_ABOUT_KEYS = re.compile(r"too many indices for tensor|valid indices \(got str")
"""What PyTorch says of a tensor that is asked for a key, as a dictionary is."""


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


@contextmanager
def kept_buffers(module: "nn.Module") -> "Iterator[set[str]]":
    """Puts back what the block writes into a module's buffers, as a forward pass may (a mean).

    Where a buffer was written, the attributes of all parts are put back too, as one may say what a
    buffer was made for (`self.size = x.shape`).

    Yields:
        a set that has the names of the buffers that were written, after the block.
    """
    attributes = _list_attributes(module)
    kept = [(*place, place[-1].clone()) for place in _list_buffers(module)]
    written: set[str] = set()
    try:
        yield written
    finally:
        for label, part, name, value, before in kept:
            if not value.equal(before):
                value.detach().copy_(before)
                written.add(label)
            if dict(part._buffers.items()).get(name) is not value:
                part._buffers[name] = value
                written.add(label)
        if written:
            _put_back(attributes)


@contextmanager
def buffers_apart(module: "nn.Module", names: Collection[str]) -> Iterator[None]:
    """Lets the block write into copies of a module's buffers; all attributes are put back.

    Unlike `kept_buffers` it leaves alone what a gradient needs: nothing is written back.

    Args:
        module: what runs in the block.
        names: of the buffers; without any, nothing is done.
    """
    attributes = _list_attributes(module) if names else []
    places = [place for place in _list_buffers(module) if place[0] in names] if names else []
    for _, part, name, value in places:
        part._buffers[name] = value.clone()
    try:
        yield
    finally:
        _put_back(attributes)
        for _, part, name, value in places:
            part._buffers[name] = value


def _list_attributes(module: "nn.Module") -> "list[tuple[nn.Module, dict[str, Any]]]":
    return [(part, dict(vars(part))) for part in module.modules()]


def _put_back(attributes: "list[tuple[nn.Module, dict[str, Any]]]") -> None:
    for part, known in attributes:
        vars(part).clear()
        vars(part).update(known)


def _list_buffers(module: "nn.Module") -> "list[tuple[str, nn.Module, str, Tensor]]":
    """Returns each buffer's name in the network, its module, its name there, and the tensor."""
    return [
        (f"{prefix}.{name}" if prefix else name, part, name, value)
        for prefix, part in module.named_modules()
        for name, value in part._buffers.items()
        if value is not None
    ]


def run_module(module: "nn.Module", inputs: "tuple[Tensor, ...]") -> Any:
    """Runs a network.

    Raises:
        InputError: it fails; the first line says how.
    """
    try:
        return module(*inputs)
    except Exception as error:
        raise explain_failure(error, inputs) from error


def is_about_shapes(error: Exception) -> bool:
    """Returns whether a network failed because its inputs have shapes that it does not take."""
    return not _is_about_arguments(error) and bool(_ABOUT_SHAPES.search(first_line(error)))


def _is_about_arguments(error: Exception) -> bool:
    pattern = _ABOUT_ARGUMENTS if isinstance(error, TypeError) else _ABOUT_KEYS
    return isinstance(error, TypeError | IndexError) and bool(pattern.search(first_line(error)))


def explain_failure(error: Exception, inputs: "tuple[Tensor, ...]") -> InputError:
    """Returns the error for a network that failed with these arguments."""
    reason = f"{type(error).__name__}: {first_line(error)}"
    shapes = [list(value.shape) for value in inputs]
    if _is_about_arguments(error):
        return InputError(
            f"the forward pass failed with {len(inputs)} tensors as its arguments: {reason}",
            "a forward that takes one tensor for each input",
            "name each with --input-shape; build a module around a network that takes a dictionary "
            "or an argument by keyword alone",
        )
    if is_about_shapes(error):
        return InputError(
            f"the forward pass failed with inputs of {shapes}: {reason}",
            "the shape it was trained with",
            "give it with --input-shape",
        )
    is_wide = any(str(value.dtype) == "torch.float64" for value in inputs)
    if _IN_HALVES.search(reason) or (not is_wide and _IN_DOUBLES.search(reason)):
        return InputError(
            f"the forward pass failed: {reason}",
            "a network that computes in float32",
            "call float() on it where it is built",
        )
    if any(str(value.dtype) == "torch.uint8" for value in inputs) and _ABOUT_BYTES.search(reason):
        return InputError(
            f"the forward pass failed with bytes: {reason}",
            "what it was trained with",
            "scale them as in training: bytes are for networks that make floats of them themselves",
        )
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
