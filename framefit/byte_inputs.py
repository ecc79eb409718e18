"""Which inputs of a network may be bytes, as pictures are that it scales itself."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from framefit.training_samples import SCENES
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from torch import nn


def find_byte_inputs(
    module: "nn.Module", shapes: Mapping[str, Sequence[int]], data: str
) -> frozenset[str]:
    """Returns the inputs with which a network computes where they are bytes.

    A layer takes no bytes, so that such a network turns them into floats before (`x.float() / 255`,
    `(x - self.mean) / self.std`). That is tried out, on one sample.

    Args:
        module: the network, in evaluation mode.
        shapes: of its inputs, in the order of its arguments.
        data: what `--data` names; only an `.npz` holds bytes that are no pictures.
    """
    import torch

    if data == SCENES or Workspace().find_dataset(data).suffix.lower() != ".npz":
        return frozenset()

    def takes(name: str) -> bool:
        arguments = [
            torch.ones((1, *shape[1:]), dtype=torch.uint8 if key == name else torch.float32)
            for key, shape in shapes.items()
        ]
        try:
            with torch.no_grad():
                module(*arguments)
        except Exception:
            return False
        return True

    return frozenset(filter(takes, shapes))
