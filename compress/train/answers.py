"""What a network answers, and the values about which it decides.

Classes behind an argmax have no gradient, and one more or less is no measure of a change. What is
learned, judged or weighed instead are the scores.
"""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from torch import Tensor, nn

from artifacts.module_outputs import name_outputs
from compress.train.decisions import Decisions

Ask = Callable[[nn.Module, tuple[Tensor, ...]], dict[str, Tensor]]
"""Returns what a module answers, by name."""

_BEFORE = " before "
_plain: "WeakSet[nn.Module]" = WeakSet()
"""Modules that were asked and decide nothing: they are run as they are from then on."""


def call(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    """Runs a module."""
    return module(*inputs)


def answer(
    module: nn.Module, inputs: tuple[Tensor, ...], run: Callable[..., Any] = call
) -> dict[str, Tensor]:
    """Returns a module's outputs by name, and the values that decided ones among them come from.

    The latter are called `classes before argmax`.

    Args:
        module: in any mode.
        inputs: its arguments.
        run: as `call`.

    Raises:
        InputError: it answers no tensor.
    """
    if module in _plain:
        return answer_plainly(module, inputs, run)
    with Decisions() as decisions:
        outputs = answer_plainly(module, inputs, run)
    before: dict[str, Tensor] = {}
    for name, output in outputs.items():
        for number, source in enumerate(decisions.find_sources(output)):
            label = f"{name}{_BEFORE}{source.operator}"
            before[f"{label} {number}" if label in before else label] = source.values
    if not before:
        _plain.add(module)
    return outputs | before


def answer_plainly(
    module: nn.Module, inputs: tuple[Tensor, ...], run: Callable[..., Any] = call
) -> dict[str, Tensor]:
    """Returns a module's outputs by name, see `name_outputs`."""
    return name_outputs(module, run(module, inputs))


def comparable(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the outputs whose differences say something: numbers that are not decided, if any."""
    decided = {name.partition(_BEFORE)[0] for name in outputs if _BEFORE in name}
    numbers = {
        name: value
        for name, value in outputs.items()
        if value.is_floating_point() and name not in decided
    }
    return numbers or dict(outputs)
