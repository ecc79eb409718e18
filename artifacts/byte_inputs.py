"""Which inputs of a network may be bytes, as pictures are that it scales itself."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


BYTE_INPUTS_KEY = "framefit.byte_inputs"
"""An export's metadata: the inputs that its module takes as bytes, as a list in JSON."""


def read_byte_inputs(metadata: Mapping[str, str]) -> frozenset[str]:
    """Returns the inputs that may be bytes, as a file says that was exported from a module."""
    try:
        names = json.loads(metadata.get(BYTE_INPUTS_KEY, "[]"))
    except ValueError:
        return frozenset()
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def find_byte_inputs(module: "nn.Module", shapes: Mapping[str, Sequence[int]]) -> frozenset[str]:
    """Returns the inputs with which a network computes where they are bytes.

    A layer takes no bytes, so that such a network turns them into floats before (`x.float() / 255`,
    `(x - self.mean) / self.std`). That is tried out, on one sample.

    Args:
        module: the network, in evaluation mode.
        shapes: of its inputs, in the order of its arguments.
    """
    import torch

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
