"""Which inputs of a network may be bytes, as pictures are that it scales itself."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def find_byte_inputs(module: "nn.Module", shapes: Mapping[str, Sequence[int]]) -> frozenset[str]:
    """Returns the inputs with which a network computes where they are bytes.

    A layer takes no bytes, so that such a network turns them into floats before (`x.float() / 255`,
    `(x - self.mean) / self.std`).

    Args:
        module: the network, in evaluation mode.
        shapes: of its inputs, in the order of its arguments.
    """
    import torch

    def takes(name: str) -> bool:
        arguments = [
            torch.ones(tuple(shape), dtype=torch.uint8 if key == name else torch.float32)
            for key, shape in shapes.items()
        ]
        try:
            with torch.no_grad():
                module(*arguments)
        except Exception:
            return False
        return True

    return frozenset(filter(takes, shapes))
