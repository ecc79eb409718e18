"""Which inputs of a module may be bytes, as pictures are that it scales itself."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn


def find_byte_inputs(module: nn.Module, shapes: Mapping[str, Sequence[int]]) -> frozenset[str]:
    """Returns the inputs with which a network computes where they are bytes.

    A layer takes no bytes, so that such a network turns them into floats before (`x.float() / 255`,
    `(x - self.mean) / self.std`). That is tried out, on one sample.

    Args:
        module: the network, in evaluation mode.
        shapes: of its inputs, in the order of its arguments.
    """

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
