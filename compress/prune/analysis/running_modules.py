"""Which modules of a network are running."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def follow_modules(
    module: nn.Module,
    stack: list[str],
    entered: Callable[[tuple[Any, ...]], None] | None = None,
) -> Iterator[None]:
    """Keeps the names of the running modules in `stack` during the block.

    Args:
        module: the network.
        stack: the names, outermost first.
        entered: told what a module is given, once its name is in the stack.
    """
    handles = []

    def enter(name: str) -> Callable[..., None]:
        def note(_: nn.Module, args: tuple[Any, ...]) -> None:
            stack.append(name)
            if entered is not None:
                entered(args)

        return note

    def leave(*_: Any) -> None:
        stack.pop()

    for name, part in module.named_modules():
        if name:
            handles.append(part.register_forward_pre_hook(enter(name), prepend=True))
            handles.append(part.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
