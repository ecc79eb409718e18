"""The states that a network reads while it is pruned or trained.

The data are frames in order. The float network runs through them once, and each sample has the
states that it had computed before that frame, as in `compress quantize`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from artifacts.recurrence import Recurrence
from artifacts.samples import Samples

if TYPE_CHECKING:
    import onnx
    from torch import nn


@dataclass(frozen=True)
class FrameStates:
    """Gives frames the states that a network computes.

    Attributes:
        model: the network.
        recurrence: its states.

    Raises:
        InputError: the states are no inputs and outputs of it.
    """

    model: "onnx.ModelProto"
    recurrence: Recurrence

    def __post_init__(self) -> None:
        self.recurrence.require_in(self.model)

    def add_to(self, frames: Samples) -> Samples:
        """Returns the frames, each with the states before it.

        Raises:
            InputError: the states do not fit the network.
        """
        from compress.own_states import FramesWithStates

        return FramesWithStates(self.model, frames, self.recurrence)


def export_states(
    module: "nn.Module", shapes: Mapping[str, tuple[int, ...]], recurrence: Recurrence | None
) -> FrameStates | None:
    """Returns what gives frames the states of a module; None where it has none.

    Args:
        module: left as it is.
        shapes: of its inputs, by name.
        recurrence: its states; None without any.

    Raises:
        InputError: the states are no inputs and outputs of it.
    """
    if recurrence is None:
        return None
    from framefit.exported_module import export_module

    return FrameStates(export_module(module, shapes), recurrence)
