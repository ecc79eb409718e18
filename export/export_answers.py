"""Networks that answer otherwise in an export: `if torch.onnx.is_in_onnx_export(): ...`.

YOLOv6 and others return their detections alone there, and feature maps beside them elsewhere. What
such a network is exported as is what it says in an export, so its own outputs, with which the file
is compared, have to be those.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from artifacts.errors import InputError
from artifacts.module_run import kept_buffers
from export.outputs import flatten_outputs

Layout = list[tuple[str, torch.Size, torch.dtype]]


@contextmanager
def as_in_export() -> Iterator[None]:
    """Lets networks find within the block that they are exported to ONNX."""
    with _replying(lambda: True):
        yield


def answers_otherwise(module: nn.Module, inputs: list[Tensor], order: tuple[str, ...]) -> bool:
    """Returns whether a network's outputs have other names or shapes in an export.

    Args:
        module: the network, in evaluation mode; it runs a second time only if it asks.
        inputs: its arguments.
        order: as for `flatten_outputs`.
    """
    questions: list[None] = []

    def note_question() -> bool:
        questions.append(None)
        return False

    with _replying(note_question):
        usual = _lay_out(module, inputs, order)
    if not questions:
        return False
    with as_in_export():
        exported = _lay_out(module, inputs, order)
    return exported is not None and exported != usual


@contextmanager
def _replying(reply: Callable[[], bool]) -> Iterator[None]:
    asked = torch.onnx.is_in_onnx_export
    torch.onnx.is_in_onnx_export = reply
    try:
        yield
    finally:
        torch.onnx.is_in_onnx_export = asked


def _lay_out(module: nn.Module, inputs: list[Tensor], order: tuple[str, ...]) -> Layout | None:
    """Returns names, shapes and types of the outputs; None where the network fails."""
    try:
        with kept_buffers(module):
            named = flatten_outputs(module(*inputs), order)
    except (InputError, RuntimeError, TypeError, ValueError, AttributeError, LookupError):
        return None
    return [(name, value.shape, value.dtype) for name, value in named]
