"""What outputs without a gradient were made from: the scores of an argmax, what was detached."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class GradientEnds(TorchFunctionMode):
    """Remembers, while it is entered, the values behind which no gradient goes on.

    A result without a gradient of values that have one (`scores.argmax(1)`, `mask.detach()`) ends
    it; what is computed from that result without others (`classes.to(torch.uint8)`), or written in
    place (`canvas[:, rows] = classes`), goes back to the same values.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sources: dict[int, tuple[Tensor, dict[int, Tensor]]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Runs a function of torch as it would without."""
        result = func(*args, **(kwargs or {}))
        sources: dict[int, Tensor] = {}
        for value in _tensors((args, kwargs)):
            if value.grad_fn is not None:
                sources[id(value)] = value
            sources.update(self._sources_of(value))
        if sources:
            for value in _tensors(args[:1] if result is None else result):
                if not value.requires_grad:
                    self._sources[id(value)] = (value, sources)
        return result

    def find_sources(self, output: Tensor) -> list[Tensor]:
        """Returns the values with a gradient that an output without one was made from."""
        return list(self._sources_of(output).values())

    def _sources_of(self, value: Tensor) -> Mapping[int, Tensor]:
        return self._sources.get(id(value), (value, {}))[1]


def _tensors(values: Any) -> Iterator[Tensor]:
    return (value for value in tree_leaves(values) if isinstance(value, Tensor))
