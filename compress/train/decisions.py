"""Follows what a network decides: which scores an argmax read, and what was made of its result."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class Source(NamedTuple):
    """Numbers that are decided about.

    Attributes:
        operator: name of the function that decides.
        values: of floating point.
    """

    operator: str
    values: Tensor


class Decisions(TorchFunctionMode):
    """Remembers, while it is entered, the numbers from which integers and masks come.

    What is computed of decided values without other numbers (`classes.to(torch.uint8)`), or written
    in place (`canvas[:, rows] = classes`), comes from the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[Tensor, dict[int, Source]]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Runs a function of torch as it would without."""
        result = func(*args, **(kwargs or {}))
        changed = args[:1] if result is None else ()
        read = {id(one): one for one in _tensors((args, kwargs))}
        sources: dict[int, Source] = {}
        for one in read.values():
            sources |= self._sources_of(one)
        others = [key for key in read if key not in self._known and key not in map(id, changed)]
        numbers = {key: read[key] for key in others if read[key].is_floating_point()}
        about = {
            key: Source(getattr(func, "__name__", "decision"), one) for key, one in numbers.items()
        }
        for made in _tensors(changed or result):
            if not made.is_floating_point():
                self._remember(made, sources | about)
            elif not numbers:
                self._remember(made, sources)
        return result

    def find_sources(self, output: Tensor) -> list[Source]:
        """Returns what an output comes from that is decided; nothing for any other."""
        return list(self._sources_of(output).values())

    def _remember(self, value: Tensor, sources: dict[int, Source]) -> None:
        if sources:
            self._known[id(value)] = (value, sources)

    def _sources_of(self, value: Tensor) -> dict[int, Source]:
        return self._known.get(id(value), (value, {}))[1]


def _tensors(values: Any) -> Iterator[Tensor]:
    return (value for value in tree_leaves(values) if isinstance(value, Tensor))
