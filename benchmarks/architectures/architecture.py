"""What one network of another package is: how to build it, and what it takes."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

Build = Callable[[], nn.Module]
WIDE = (1, 3, 128, 192)
SQUARE = (1, 3, 128, 128)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A network with random weights.

    Attributes:
        package: whose it is, as it is imported.
        name: unlike those of the package's others.
        build: makes the module.
        shape: of each input, [N, C, H, W] or [C, H, W].
        inputs: how many of that shape it takes.
    """

    package: str
    name: str
    build: Build
    shape: tuple[int, ...] = WIDE
    inputs: int = 1
