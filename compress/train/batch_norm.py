"""Re-estimates BatchNorm's statistics after a network was changed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from artifacts.module_copy import share_values
from artifacts.module_run import buffers_apart, evaluation_mode, kept_buffers
from compress.train.run_state import digest_values

MOST_KNOWN = 64
"""Sets of weights whose statistics are remembered."""


def count_batch_norms(module: nn.Module) -> int:
    """Returns how many BatchNorms keep statistics."""
    return len(_norms(module))


def _reestimate(
    module: nn.Module, batches: Sequence[tuple[Tensor, ...]], norms: Sequence[_BatchNorm]
) -> None:
    """Replaces the statistics of some BatchNorms of a module in evaluation mode."""
    momenta = [norm.momentum for norm in norms]
    known = {id(value) for norm in norms for value in norm.buffers()}
    others = {name for name, value in module.named_buffers() if id(value) not in known}
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    try:
        for batch in batches:
            with buffers_apart(module, others):
                module(*batch)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()


@contextmanager
def batch_statistics(module: nn.Module, example: tuple[Tensor, ...]) -> Iterator[None]:
    """Lets BatchNorms compute with the statistics of each batch, as while training.

    Nothing else of the module is in training mode, and what the BatchNorms have stored comes back.

    Args:
        module: in evaluation mode.
        example: arguments; BatchNorms that see one value per channel of it are left alone.
    """
    norms = _with_several_values(module, example)
    stored = [{name: value.clone() for name, value in norm.named_buffers()} for norm in norms]
    for norm in norms:
        norm.train()
    try:
        yield
    finally:
        for norm, buffers in zip(norms, stored, strict=True):
            norm.load_state_dict(buffers, strict=False)
            norm.eval()


def name_norms(module: nn.Module, *, with_statistics: bool = False) -> frozenset[str]:
    """Returns the names of the BatchNorms that keep statistics.

    Args:
        module: the network.
        with_statistics: only of those that have seen data, whose statistics are no longer 0 and 1.
    """
    return frozenset(
        name
        for name, part in module.named_modules()
        if _keeps_statistics(part) and (not with_statistics or _has_seen_data(part))
    )


def hold_statistics(module: nn.Module, names: frozenset[str]) -> None:
    """Lets BatchNorms compute with what they have stored, also while the module trains."""
    for name in names:
        module.get_submodule(name).eval()


def improve_batch_norm(
    module: nn.Module, batches: Iterable[tuple[Tensor, ...]], score: Callable[[nn.Module], float]
) -> float | None:
    """Re-estimates the statistics and keeps them only where the score gets lower.

    Args:
        module: changed in place.
        batches: see `StatisticsRenewal`.
        score: of the module; lower is better. It is asked once for each of the two.

    Returns:
        the score of what is kept; None without BatchNorms, where nothing is scored.
    """
    return StatisticsRenewal(batches).improve(module, score)


class StatisticsRenewal:
    """Re-estimates the statistics of a network again and again, on the same batches.

    Pruned or replaced layers give their BatchNorms other statistics than those they have stored;
    this alone often brings back most of the quality (Li et al., 2020, "EagleEye"). The statistics
    follow from the weights, so they are estimated once for each set of weights.

    Args:
        batches: arguments of the module, [N, ...] each; without any, nothing changes. A BatchNorm
            that sees one value per channel of the smallest (after a mean over the picture) has
            nothing to take statistics of, and keeps those it has.
    """

    def __init__(self, batches: Iterable[tuple[Tensor, ...]]) -> None:
        self._batches = list(batches)
        self._names: tuple[str, ...] = ()
        self._known: dict[str, dict[str, Tensor]] = {}

    def improve(self, module: nn.Module, score: Callable[[nn.Module], float]) -> float | None:
        """Keeps new statistics only where the score gets lower, see `improve_batch_norm`."""
        if not count_batch_norms(module):
            return None
        run, candidate = share_values(module), share_values(module)
        self.renew(run)
        _copy_statistics(run, candidate)
        new, old = score(candidate), score(module)
        if not new < old:
            return old
        _copy_statistics(run, module)
        return new

    @torch.no_grad()
    def renew(self, module: nn.Module) -> None:
        """Replaces the running mean and variance by those of the batches, each counting the same.

        Args:
            module: changed in place, where the batches are; its mode (training or evaluation)
                stays.
        """
        if not self._batches or not count_batch_norms(module):
            return
        with evaluation_mode(module):
            self._renew(module)

    def _renew(self, module: nn.Module) -> None:
        """Renews the statistics of a module in evaluation mode."""
        if not self._known:
            norms = set(_with_several_values(module, _smallest(self._batches)))
            self._names = tuple(name for name, part in module.named_modules() if part in norms)
        parts = [(name, module.get_submodule(name)) for name in self._names]
        buffers = {
            f"{name}.{key}": value for name, part in parts for key, value in part.named_buffers()
        }
        others = [item for item in module.named_buffers() if item[0] not in buffers]
        weights = digest_values(module.named_parameters(), others)
        if weights in self._known:
            for name, value in self._known[weights].items():
                buffers[name].copy_(value)
            return
        _reestimate(module, self._batches, [part for _, part in parts if _keeps_statistics(part)])
        if len(self._known) == MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[weights] = {name: value.clone() for name, value in buffers.items()}


def _copy_statistics(source: nn.Module, module: nn.Module) -> None:
    """Takes over the statistics of BatchNorms, and nothing else that running a network writes."""
    for name in name_norms(source):
        norm, same = source.get_submodule(name), module.get_submodule(name)
        same.load_state_dict(dict(norm.named_buffers()), strict=False)


def _smallest(batches: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return min(batches, key=lambda batch: len(batch[0]))


def _with_several_values(module: nn.Module, batch: tuple[Tensor, ...]) -> list[_BatchNorm]:
    """Returns the BatchNorms that see more than one value per channel each time they run."""
    single: set[_BatchNorm] = set()

    def look(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(norm, _BatchNorm) and inputs[0].numel() <= inputs[0].shape[1]:
            single.add(norm)

    norms = _norms(module)
    handles = [norm.register_forward_pre_hook(look) for norm in norms]
    try:
        with kept_buffers(module):
            module(*batch)
    finally:
        for handle in handles:
            handle.remove()
    return [norm for norm in norms if norm not in single]


def _norms(module: nn.Module) -> list[_BatchNorm]:
    return [part for part in module.modules() if _keeps_statistics(part)]


def _keeps_statistics(part: nn.Module) -> TypeGuard[_BatchNorm]:
    return isinstance(part, _BatchNorm) and part.running_mean is not None


def _has_seen_data(norm: _BatchNorm) -> bool:
    mean, var = norm.running_mean, norm.running_var
    return mean is not None and var is not None and bool(mean.any() or (var != 1).any())
