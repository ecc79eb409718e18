"""Runs a network once and finds its channel groups."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.jit import ScriptModule

from artifacts.errors import InputError
from artifacts.module_copy import copy_module, share_values
from artifacts.module_names import require_modules
from artifacts.module_outputs import name_leaves
from compress.prune.analysis.branch_ids import join_branch
from compress.prune.analysis.cut_rules import settle_slices
from compress.prune.analysis.families import TIED_TOGETHER, Channels, find_families
from compress.prune.analysis.layer_rules import LAYER_RULES
from compress.prune.analysis.movement_rules import MOVEMENT_RULES
from compress.prune.analysis.plain_operators import plain_operators
from compress.prune.analysis.pointwise_rules import POINTWISE_RULES
from compress.prune.analysis.reduction_rules import REDUCTION_RULES
from compress.prune.analysis.running_modules import follow_modules
from compress.prune.analysis.trace import Branch, Trace
from compress.prune.analysis.tracer import ChannelTracer
from compress.prune.double_precision import run_widely

_PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum, torch.dtype, torch.device)
_BATCH = 2
Turned = frozenset[tuple[str, int]]
"""Splits by place and order, see `ChannelTracer`."""
RULES = {**POINTWISE_RULES, **REDUCTION_RULES, **MOVEMENT_RULES, **LAYER_RULES}


def find_channels(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    protect: tuple[str, ...] = (),
    turned: Turned = frozenset(),
    others: Sequence[tuple[Tensor, ...]] = (),
) -> Channels:
    """Finds what can be pruned in a network by following one run of it.

    Where code views one axis as several, channels leave along the longest, or along the next where
    only so any of them can (heads of an attention whose number no module says).

    Args:
        module: the network, in evaluation mode.
        inputs: its arguments.
        protect: modules whose outputs stay whole, by name.
        turned: splits where channels leave along the second longest axis.
        others: arguments with which it runs other layers; what these tie and keep counts too.

    Returns:
        the channel groups; outputs of the network are protected.

    Raises:
        InputError: the network cannot run with these inputs or is TorchScript, what it returns is
            not known, or `protect` names no module.
    """
    scripted = [name for name, part in module.named_modules() if isinstance(part, ScriptModule)]
    if scripted:
        raise InputError(
            f"module '{scripted[0]}' is TorchScript, which cannot be followed",
            "modules of Python",
            "build the network without torch.jit.script; the names of its weights stay",
        )
    require_modules(module, protect)
    found = _find(module, (inputs, *others), protect, turned)
    for places in _splits_left_whole(found):
        other = _find(module, (inputs, *others), protect, turned | places)
        if count_channels(other) > count_channels(found):
            found, turned = other, turned | places
    return found


def _splits_left_whole(channels: Channels) -> list[Turned]:
    """Returns where code views one axis as several whose channels all stay, tied to each other.

    What is the same code of several modules is one set.
    """
    tied = {item.weight for item in channels.left_alone if item.reason == TIED_TOGETHER}
    whole = [channels.roots[ids] for name in tied for ids in channels.trace.weights[name].values()]
    found: dict[tuple[type[nn.Module], int], Turned] = {}
    for split in channels.trace.splits:
        if whole and np.isin(channels.roots[split.ids], np.concatenate(whole)).any():
            code = split.kind, split.order
            found[code] = found.get(code, frozenset()) | {(split.place, split.order)}
    return list(found.values())


def count_channels(channels: Channels) -> int:
    """Returns how many channels can be removed."""
    return sum(family.count * family.width for family in channels.families)


def _find(
    module: nn.Module,
    samples: Sequence[tuple[Tensor, ...]],
    protect: tuple[str, ...],
    turned: Turned,
) -> Channels:
    """Finds the channel groups, where these splits are turned."""
    trace = _trace(module, samples[0], turned)
    for sample in samples[1:]:
        join_branch(trace, Branch(sample, _trace(module, sample, turned)))
    for name, axes in trace.weights.items():
        if any(name.startswith(f"{one}.") for one in protect) and 0 in axes:
            trace.sets.freeze(axes[0], "protected by the user")
    if trace.parameters - trace.used_somewhere:
        _tie_as_in_training(trace, module, samples[0], turned)
    return find_families(trace)


def _trace(module: nn.Module, inputs: tuple[Tensor, ...], turned: Turned) -> Trace:
    """Follows one run, and keeps the network's outputs."""
    tracer, result = _follow(module, inputs, turned)
    outputs = _name_tensors(result)
    for name, tensor in outputs:
        tracer.freeze(tensor, f"output '{name}' of the network")
    tracer.trace.unneeded = tracer.sources.list_unneeded(tensor for _, tensor in outputs)
    return tracer.trace


def follow_channels(module: nn.Module, inputs: tuple[Tensor, ...]) -> Trace:
    """Follows one run of a network.

    Raises:
        InputError: the network cannot run with these inputs.
    """
    return _follow(module, inputs, frozenset())[0].trace


def _follow(
    module: nn.Module, inputs: tuple[Tensor, ...], turned: Turned
) -> tuple[ChannelTracer, Any]:
    """Follows one run of a copy; returns the tracer and what the network returned.

    What a run leaves on the module (a state, a table) would be constant in the next.
    """
    running = share_values(module)
    tracer = ChannelTracer(running, inputs, RULES, turned)
    with plain_operators(), follow_modules(running, tracer.stack, tracer.note_inputs), tracer:
        result = run_widely(running, inputs)
    settle_slices(tracer)
    return tracer, result


def _tie_as_in_training(
    trace: Trace,
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    turned: Turned,
) -> None:
    """Ties what only training mode ties: heads of deep supervision to the features they read.

    What is kept whole in training mode alone may still leave: it takes part in no inference. A
    network that cannot run in that mode with nothing but its inputs is followed no further.

    Args:
        trace: of the run in evaluation mode; weights have the same ids in both.
        module: the network; it is not changed.
        inputs: of one sample; several are tried where BatchNorm takes no single value per channel.
        turned: as in evaluation mode.
    """
    batch = repeat_sample(inputs)
    other = _follow_training(module, inputs, turned) or _follow_training(module, batch, turned)
    if other is None:
        return
    roots, _ = other.sets.solve()
    for axes in trace.weights.values():
        for ids in axes.values():
            trace.sets.tie(ids, roots[ids], "")
    trace.whole_groups |= other.whole_groups
    trace.used_in_training |= other.used


def _follow_training(module: nn.Module, inputs: tuple[Tensor, ...], turned: Turned) -> Trace | None:
    """Follows one run of a copy in training mode; None where it fails."""
    try:
        with torch.random.fork_rng(devices=()):
            return _follow(copy_module(module).train(), inputs, turned)[0].trace
    except InputError:
        return None


def repeat_sample(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Returns a batch of equal samples, for networks that do not train on one."""
    return tuple(value.repeat(_BATCH, *[1] * (value.ndim - 1)) for value in inputs)


def output_tensors(result: Any) -> list[Tensor]:
    """Lists the tensors in what a network returned.

    Raises:
        InputError: there is none, or there may be some in an object that cannot be looked into.
    """
    return [tensor for _, tensor in _name_tensors(result)]


def _name_tensors(result: Any) -> list[tuple[str, Tensor]]:
    tensors = []
    for name, leaf in name_leaves(result):
        if isinstance(leaf, Tensor):
            tensors.append((name, leaf))
        elif not isinstance(leaf, _PLAIN):
            raise InputError(
                f"output '{name}' of the network is a {type(leaf).__name__}, in which no tensors "
                "can be found",
                "tensors in dictionaries, lists, tuples and dataclasses",
            )
    if not tensors:
        raise InputError(f"the network returns no tensor but a {type(result).__name__}", "tensors")
    return tensors
