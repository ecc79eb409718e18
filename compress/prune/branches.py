"""Samples on which a network takes another branch than on the first: other layers run."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from artifacts.module_copy import share_values
from artifacts.module_run import evaluation_mode, run_module
from artifacts.wording import name_some
from compress.prune.analysis.trace import Trace
from compress.prune.proof_inputs import Inputs, enliven_inputs, widen_inputs

_MOST_ALIKE = 4
"""So many branches of layers that others have shown are followed as well."""
_MOST_NAMES = 3
_LOOKS = frozenset(
    {
        *("_local_scalar_dense", "nonzero", "nonzero_static", "equal", "is_nonzero", "item"),
        *("masked_select", "unique_dim", "unique_consecutive", "_unique", "_unique2", "nms"),
    }
)
_READINGS = frozenset({Tensor.tolist, Tensor.numpy, Tensor.__array__})


class _Used(TorchDispatchMode):
    """Remembers which weights operators take in, and whether code could look at values.

    Only code that reads a number of a tensor, or counts what fulfils a condition, can go on
    otherwise with other values.
    """

    def __init__(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.has_looked = False
        self._names = WeakTensorKeyDictionary()
        for name, tensor in weights:
            self._names[tensor] = name

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        taken = (one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor))
        self.found.update(self._names[one] for one in taken if one in self._names)
        self.has_looked |= _may_look(func._overloadpacket.__name__, args)
        return func(*args, **(kwargs or {}))


def _may_look(operator: str, args: tuple[Any, ...]) -> bool:
    """Whether an operator reads a number, or takes as many as fulfil a condition: `x[x > 0]`."""
    places = args[1] if operator.startswith("index") and len(args) > 1 else ()
    indices = places if isinstance(places, list | tuple) else ()
    is_chosen = any(isinstance(one, Tensor) and one.dtype == torch.bool for one in indices)
    return is_chosen or operator in _LOOKS


class _Readings(TorchFunctionMode):
    """Notices tensors that are made lists or arrays, which no operator sees."""

    def __init__(self) -> None:
        super().__init__()
        self.has_looked = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.has_looked |= func in _READINGS
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
    used_first, may_branch = _list_used(module, first)
    seen, used = {used_first}, set(used_first)
    found: list[Inputs] = []
    alike = 0
    for sample in samples if may_branch else ():
        ran, _ = _list_used(module, sample)
        is_new = not ran <= used
        if ran in seen or (not is_new and alike == _MOST_ALIKE):
            continue
        alike += not is_new
        seen.add(ran)
        used |= ran
        found.append(sample)
    return found


def _list_used(module: nn.Module, inputs: Inputs) -> tuple[frozenset[str], bool]:
    """Returns the names of the weights that a run uses, and whether its code looks at values."""
    running = share_values(module)
    used, readings = _Used(running.named_parameters()), _Readings()
    with evaluation_mode(running), used, readings:
        run_module(running, inputs)
    return frozenset(used.found), used.has_looked or readings.has_looked


def note_unused(trace: Trace) -> list[str]:
    """Names layers of which neither a sample nor training mode uses a weight.

    Returns:
        one note, or none.
    """
    unused = trace.parameters - trace.used_somewhere
    owners = (name.rpartition(".")[0] or name for name in trace.weights if name in unused)
    layers = list(dict.fromkeys(owners))
    if not layers:
        return []
    return [
        f"no sample used {name_some(layers, _MOST_NAMES)}: what is computed with them was not "
        "followed, and may fail in the pruned network; if other inputs use them, give such samples"
    ]
