"""Samples on which a network takes another branch than on the first: other layers run."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from artifacts.module_copy import share_values
from artifacts.module_run import evaluation_mode, run_module
from artifacts.wording import name_some
from compress.prune.analysis.trace import Trace
from compress.prune.proof_inputs import enliven_inputs, widen_inputs

Inputs = tuple[Tensor, ...]
_MOST_ALIKE = 4
"""So many branches of layers that others have shown are followed as well."""
_MOST_NAMES = 3


class _Used(TorchDispatchMode):
    """Remembers which weights operators take in."""

    def __init__(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._names = WeakTensorKeyDictionary()
        for name, tensor in weights:
            self._names[tensor] = name

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        taken = (one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor))
        self.found.update(self._names[one] for one in taken if one in self._names)
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def find_branches(module: nn.Module, inputs: Inputs, samples: Sequence[Inputs]) -> list[Inputs]:
    """Returns samples on which other layers run than on those before, the first inputs among them.

    All that use a weight which those before do not, and some that use weights of them together as
    none does.

    Args:
        module: the network; it is not changed.
        inputs: with which it is followed anyway, enlivened.
        samples: other arguments.

    Raises:
        InputError: it fails with one of them.
    """
    wide = enliven_inputs(widen_inputs(inputs))
    first = tuple(one.to(given.dtype) for one, given in zip(wide, inputs, strict=True))
    seen = {_list_used(module, first)}
    used = set().union(*seen)
    found: list[Inputs] = []
    alike = 0
    for sample in samples:
        ran = _list_used(module, sample)
        is_new = not ran <= used
        if ran in seen or (not is_new and alike == _MOST_ALIKE):
            continue
        alike += not is_new
        seen.add(ran)
        used |= ran
        found.append(sample)
    return found


def _list_used(module: nn.Module, inputs: Inputs) -> frozenset[str]:
    running = share_values(module)
    with evaluation_mode(running), _Used(running.named_parameters()) as used:
        run_module(running, inputs)
    return frozenset(used.found)


def note_unused(trace: Trace) -> list[str]:
    """Names layers of which neither a sample nor training mode uses a weight.

    Returns:
        one note, or none.
    """
    unused = trace.parameters - trace.used_somewhere
    owners = (name.rpartition(".")[0] for name in trace.weights if name in unused)
    layers = list(dict.fromkeys(owners))
    if not layers:
        return []
    return [
        f"no sample used {name_some(layers, _MOST_NAMES)}: what is computed with them was not "
        "followed, and may fail in the pruned network; if other inputs use them, give such samples"
    ]
