"""Importance from gradients: what a loss would lose, per head.

To first order a loss changes by s = Σ g·w where the columns w of every layer that takes a channel
group in are removed (g: their gradient); that sum is the gradient of the group's activation times
the activation. Channels that no layer takes in, such as those of queries and keys, which are
multiplied with each other, have it from the weights and the bias that make them. Taylor (Molchanov
et al., 2019) averages |s| over samples, Fisher (Theis et al., 2018; Liu et al., 2021, "Group
Fisher") s².

Every head gives a score of its own, divided by its mean over all groups; a group's score is the
largest of them. So the shared trunk keeps what any one head needs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifacts.errors import InputError
from artifacts.module_run import explain_gradient
from compress.prune.analysis.families import Channels
from compress.prune.analysis.shuffles import Place
from compress.prune.importance.contract import (
    GroupSums,
    ImportanceData,
    consumer_places,
    maker_places,
    sum_over_others,
)
from compress.train.answers import answer
from compress.train.saved_values import keep_saved_values
from compress.train.unit_parts import OutputParts, find_parts

Scores = NDArray[np.float64]
_OTHER_WAY = "; or prune with --importance activation or magnitude, which need no gradients"


def score_by_taylor(module: nn.Module, channels: Channels, data: ImportanceData) -> Scores:
    """Mean absolute first-order change of each head's loss, see the module."""
    return _score(module, channels, data, np.abs)


def score_by_fisher(module: nn.Module, channels: Channels, data: ImportanceData) -> Scores:
    """Mean squared first-order change of each head's loss, see the module."""
    return _score(module, channels, data, np.square)


def output_distance(
    seed: int = 0, samples: Sequence[tuple[Tensor, ...]] = ()
) -> Callable[..., dict[str, Tensor]]:
    """Returns losses that need no labels: one per output, or per part of it.

    The squared distance to the network's own outputs has no gradient at the network itself, but a
    second order: E[(r·J w)²] = |J w|² for random r of unit variance, with J the outputs' Jacobian.
    The loss is r·y / |y|, so its Fisher score is the relative squared change of that output. An
    output that is decided has those of what was decided about (scores); one that is detached none.

    Args:
        seed: of the random directions.
        samples: inputs on which the first network shows which outputs join values of unlike units
            (boxes and probabilities); each of their parts then has a loss. None takes all as one.
    """
    parts: OutputParts | None = None
    generator = torch.Generator().manual_seed(seed)

    def losses(module: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        nonlocal parts
        parts = parts or _find_parts(module, samples)
        result = {}
        for name, out in parts.split(answer(module, inputs)).items():
            if not out.requires_grad:
                continue
            direction = torch.randn(out.shape, generator=generator).to(out)
            result[name] = (direction * out).sum() / (out.detach().norm() + 1e-12)
        return result

    return losses


@torch.no_grad()
def _find_parts(module: nn.Module, samples: Sequence[tuple[Tensor, ...]]) -> OutputParts:
    return find_parts(answer(module, inputs) for inputs in samples)


def _score(
    module: nn.Module, channels: Channels, data: ImportanceData, size: Callable[..., Scores]
) -> Scores:
    if data.losses is None or not data.batches:
        raise ValueError("gradients need batches and losses")
    parameters = dict(module.named_parameters())
    readers = [place for place in consumer_places(channels) if place[0] in parameters]
    unread = [one for one in channels.families if not set(readers) & set(dict(one.places))]
    makers = [place for place in maker_places(channels, unread) if place[0] in parameters]
    roots = np.array([root for family in unread for root in family.roots], np.int64)
    modes = {name: value.requires_grad for name, value in parameters.items()}
    names = {name for name, _ in (*readers, *makers)}
    for name, value in parameters.items():
        value.requires_grad_(name in names)
    per_head: dict[str, Scores] = {}
    try:
        for batch in data.batches:
            for head in _compute_gradients(module, batch, data.losses):
                changes = _sum_changes(parameters, channels, readers)
                changes[roots] = _sum_changes(parameters, channels, makers)[roots]
                per_head[head] = per_head.get(head, 0.0) + size(changes)
    finally:
        module.zero_grad(set_to_none=True)
        for name, value in parameters.items():
            value.requires_grad_(modes[name])
    return _largest_relative(per_head, channels)


def _sum_changes(
    parameters: Mapping[str, Tensor], channels: Channels, places: Sequence[Place]
) -> Scores:
    """Returns Σ g·w of each group over the indices that it has of these axes."""
    sums = GroupSums(channels)
    for name, axis in places:
        gradient = parameters[name].grad
        if gradient is not None:
            values = sum_over_others(gradient * parameters[name].detach(), axis)
            sums.add((name, axis), values)
    return sums.totals


def _compute_gradients(
    module: nn.Module, batch: Any, find: Callable[..., Mapping[str, Tensor]]
) -> Iterator[str]:
    """Yields the name of each loss of a batch while the parameters have its gradients.

    Raises:
        InputError: autograd cannot follow the network, or no loss has a gradient.
    """
    try:
        with keep_saved_values():
            losses = find(module, batch)
        if not losses:
            raise InputError(
                "no output of the network has a gradient",
                "outputs that are computed from its weights and not detached",
                _OTHER_WAY.removeprefix("; or "),
            )
        for index, (head, loss) in enumerate(losses.items()):
            module.zero_grad(set_to_none=True)
            loss.backward(retain_graph=index < len(losses) - 1)
            yield head
    except RuntimeError as error:
        raise explain_gradient(error, _OTHER_WAY) from error


def _largest_relative(per_head: dict[str, Scores], channels: Channels) -> Scores:
    roots = np.array([root for family in channels.families for root in family.roots], np.int64)
    relative = []
    for scores in per_head.values():
        mean = scores[roots].mean() if roots.size else 0.0
        relative.append(scores / mean if mean > 0 else scores)
    combined: Scores = np.max(relative, axis=0)
    return combined
