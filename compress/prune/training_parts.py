"""What a network computes only while it trains, which no run in evaluation mode shows."""

import torch
from torch import Tensor, nn

from artifacts.errors import InputError, first_line
from artifacts.module_copy import copy_module
from artifacts.wording import name_some
from compress.prune.analysis.api import run_module
from compress.prune.analysis.tracer import Trace

_MOST_NAMES = 3
_BATCH = 2
"""BatchNorm takes no single value per channel in training mode."""


def note_training(
    module: nn.Module, pruned: nn.Module, inputs: tuple[Tensor, ...], trace: Trace
) -> list[str]:
    """Says where a network that trained no longer does, as its further heads kept their width.

    Heads that only training uses (deep supervision) are not followed: what they read may be
    narrower now. They are no part of what is deployed, and `compress distill` does not run them.

    Args:
        module: before.
        pruned: after.
        inputs: of one sample.
        trace: of `module`.

    Returns:
        one note, or none.
    """
    unused = [name for name in trace.weights if name in trace.parameters - trace.used]
    batch = tuple(value.repeat(_BATCH, *[1] * (value.ndim - 1)) for value in inputs)
    if not unused or _problem_in_training(module, batch):
        return []
    problem = _problem_in_training(pruned, batch)
    if not problem:
        return []
    return [
        f"in training mode the pruned network fails ({problem}): only that mode uses "
        f"{name_some(unused, _MOST_NAMES)}, so their channels were not followed; 'compress "
        "distill' trains without them; to train it yourself, keep what they read whole with "
        "--protect"
    ]


def _problem_in_training(module: nn.Module, batch: tuple[Tensor, ...]) -> str:
    """Returns how a forward pass in training mode fails; empty where it does not."""
    try:
        with torch.random.fork_rng(devices=()), torch.no_grad():
            run_module(copy_module(module).train(), batch)
    except InputError as error:
        return first_line(error.__cause__ or error)
    return ""
