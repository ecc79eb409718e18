"""Keeps what a backward pass needs where a network's code writes into it.

Detectors decode boxes in place (`y = x.sigmoid(); y[..., 2:4] = (y[..., 2:4] * 2) ** 2`), which
overwrites the sigmoid that its gradient is computed from, so that autograd refuses.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from compress.train.lesson import Batch, Lesson, copy_lesson


class _Saved:
    """A value that a backward pass will read."""

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def move_away(self) -> None:
        """Gives the value memory of its own, before its memory is written into."""
        self.value = self.value.clone()


class _SavedValues(TorchDispatchMode):
    """Knows all saved values by their memory, and sees every write into it."""

    def __init__(self) -> None:
        super().__init__()
        self._by_memory: dict[int, WeakSet[_Saved]] = defaultdict(WeakSet)

    def save(self, value: Tensor) -> _Saved:
        saved = _Saved(value)
        self._by_memory[_memory(value)].add(saved)
        return saved

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        named = dict(kwargs or {})
        if func._schema.is_mutable:
            for index, argument in enumerate(func._schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    written = args[index] if index < len(args) else named.get(argument.name)
                    self._note_write(written)
        return func(*args, **named)

    def _note_write(self, written: Any) -> None:
        for value in written if isinstance(written, (list, tuple)) else (written,):
            if isinstance(value, Tensor):
                for saved in self._by_memory.pop(_memory(value), ()):
                    saved.move_away()


def _memory(value: Tensor) -> int:
    """Returns where a value's memory begins; a sparse one, which no view shares, stands alone."""
    return value.untyped_storage().data_ptr() if value.layout == torch.strided else -id(value)


@contextmanager
def keep_saved_values() -> Iterator[None]:
    """Lets a network's code write into values that the gradient of its forward pass needs.

    They are copied before they are overwritten, and only then. The forward pass runs within; the
    backward pass may run behind, as long as no weight has been changed by then.
    """
    values = _SavedValues()
    hooks = torch.autograd.graph.saved_tensors_hooks(values.save, lambda saved: saved.value)
    with hooks, values:
        yield


def overwrites_saved(lesson: Lesson, batch: Batch) -> bool:
    """Returns whether a lesson's code writes into values that its gradient needs.

    Args:
        lesson: what is to be trained; a copy of it runs.
        batch: a few samples.
    """
    trial = copy_lesson(lesson).train()
    try:
        with torch.random.fork_rng(devices=()):
            torch.stack(list(trial(batch).values())).sum().backward()
    except (RuntimeError, ValueError) as error:
        return "modified by an inplace operation" in str(error)
    return False
