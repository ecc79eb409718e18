"""How much the outputs of a module's first layer vary, BatchNorm included."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from artifacts.module_run import run_module
from framefit.foreign_pixels import measure_spread

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = NDArray[Any]


@dataclass
class _Call:
    """One call of a layer.

    Attributes:
        layer: its name.
        seen: sum of the magnitudes of its input.
        spread: of its output, see `measure_spread`.
    """

    layer: str
    seen: float
    spread: float


def measure_module_layers(
    module: "nn.Module", name: str, sample: Mapping[str, Array]
) -> dict[str, float]:
    """Returns how much the output of the first layer that an input reaches varies.

    It is the layer whose input is another one where the network's input is black. It has the
    name of the BatchNorm's layer where one follows. Empty where no layer is reached.

    Args:
        module: the network, in evaluation mode; left as it is.
        name: of the input.
        sample: values of all inputs, in the order of the module's arguments.

    Raises:
        InputError: the network fails.
    """
    import torch

    given = {key: torch.from_numpy(value) for key, value in sample.items()}
    black = given | {name: torch.zeros_like(given[name])}
    calls, others = (_record_calls(module, tuple(one.values())) for one in (given, black))
    for call, other in zip(calls, others, strict=False):
        if call.seen != other.seen:
            return {call.layer: call.spread}
    return {}


def _record_calls(module: "nn.Module", inputs: "tuple[Tensor, ...]") -> list[_Call]:
    import torch

    with _watched(module) as calls, torch.no_grad():
        run_module(module, inputs)
    return calls


@contextmanager
def _watched(module: "nn.Module") -> Iterator[list[_Call]]:
    """Lists the calls of layers within the block, in their order.

    Layers that are given their input by a keyword, or return no tensor, are not seen.
    """
    import torch
    from torch import nn

    calls: list[_Call] = []
    last: list[Tensor] = []
    names = {part: path for path, part in module.named_modules()}

    def note_layer(part: nn.Module, inputs: Any, output: Any) -> None:
        if not inputs or not isinstance(output, torch.Tensor):
            return
        seen = float(inputs[0].abs().sum())
        axis = -1 if isinstance(part, nn.Linear) else 1
        calls.append(_Call(names[part], seen, measure_spread(output.float().numpy(), axis)))
        last[:] = [output]

    def note_norm(part: nn.Module, inputs: Any, output: "Tensor") -> None:
        if last and inputs and inputs[0] is last[0]:
            calls[-1].spread = measure_spread(output.float().numpy(), 1)

    layers = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    hooks = [
        part.register_forward_hook(note_layer if isinstance(part, layers) else note_norm)
        for part in names
        if isinstance(part, (*layers, *norms))
    ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
