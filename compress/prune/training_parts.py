"""What a network computes only while it trains, which no run in evaluation mode shows."""

import torch
from torch import Tensor, nn

from artifacts.errors import InputError, first_line
from artifacts.module_copy import copy_module
from artifacts.module_run import run_module
from artifacts.wording import name_some
from compress.prune.analysis.api import repeat_sample
from compress.prune.analysis.trace import Trace

_MOST_NAMES = 3


def note_training(
    module: nn.Module, pruned: nn.Module, inputs: tuple[Tensor, ...], trace: Trace
) -> list[str]:
    """Says where a network that trained no longer does.

    Heads that only training uses (deep supervision) take narrower features where they could be
    followed. They are no part of what is deployed, and `compress distill` does not run them, so
    nothing is kept whole for those that could not.

    Args:
        module: before.
        pruned: after.
        inputs: of one sample.
        trace: of `module`.

    Returns:
        one note, or none.
    """
    unused = [name for name in trace.weights if name in trace.parameters - trace.used]
    batch = repeat_sample(inputs)
    if not unused or _problem_in_training(module, batch):
        return []
    problem = _problem_in_training(pruned, batch)
    if not problem:
        return []
    return [
        f"in training mode the pruned network fails ({problem}): only that mode uses "
        f"{name_some(unused, _MOST_NAMES)}, whose channels could not be followed; 'compress "
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
