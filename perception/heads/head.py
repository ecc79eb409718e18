"""What a head is: raw outputs, training targets from a scene, a loss."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from perception.scene.sample import Scene


class TargetEncoder(Protocol):
    """Turns a scene's labels into dense training targets; numpy only, runs in the loader."""

    def encode(self, scene: Scene, scale: float) -> dict[str, NDArray[np.generic]]:
        """Encodes one scene.

        Args:
            scene: the labelled picture, at the size the network will see.
            scale: that size relative to the network's own input size; below 1 while training runs
                at a reduced resolution.

        Returns:
            arrays without a batch axis, named so that no two heads collide.
        """
        ...


class Head(nn.Module):
    """One task's convolutions over the neck's levels.

    Attributes:
        output_names: names of the outputs, in order.
        metadata: what a decoder must know about them.
        encoder: makes this head's training targets.
    """

    output_names: tuple[str, ...]
    metadata: dict[str, Any]
    encoder: TargetEncoder

    def loss(self, outputs: dict[str, Tensor], targets: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the weighted terms of the loss (scalars); their sum is minimised."""
        raise NotImplementedError


def pick_level(strides: list[int], wanted: int) -> int:
    """Returns the finest stride that is at least `wanted`, or the coarsest there is."""
    return min((stride for stride in strides if stride >= wanted), default=strides[-1])
