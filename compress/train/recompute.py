"""Activation checkpointing: memory for time (Chen et al., 2016)."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


@contextmanager
def recompute_activations(module: nn.Module) -> Iterator[tuple[str, ...]]:
    """Keeps only the inputs of a module's blocks, and computes the rest again going backwards.

    Blocks are the children of the outermost `nn.Sequential`s that have children of their own. While
    a block is computed again its BatchNorms count nothing, so that the result is the same.

    Args:
        module: the network; within the `with` block its blocks' `forward` is replaced.

    Yields:
        the names of the blocks.
    """
    blocks = dict(_find_blocks(module, ""))
    originals: dict[str, Callable[..., Any]] = {}
    for name, block in blocks.items():
        originals[name] = block.forward
        block.forward = partial(  # type: ignore[method-assign]
            checkpoint,
            block.forward,
            use_reentrant=False,
            context_fn=partial(_contexts, block),
        )
    try:
        yield tuple(blocks)
    finally:
        for block in blocks.values():
            del block.forward


def _find_blocks(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        is_block = any(True for _ in child.children()) and not isinstance(child, nn.ModuleList)
        if isinstance(module, nn.Sequential) and is_block:
            yield path, child
        else:
            yield from _find_blocks(child, f"{path}.")


def _contexts(block: nn.Module) -> tuple[AbstractContextManager, AbstractContextManager]:
    return nullcontext(), _still_statistics(block)


@contextmanager
def _still_statistics(block: nn.Module) -> Iterator[None]:
    norms = [part for part in block.modules() if isinstance(part, _BatchNorm)]
    kept = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked = norm.num_batches_tracked.clone()
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, kept, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, count
