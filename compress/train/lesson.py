"""What the trainer trains: a module that turns a batch into the terms of a loss."""

from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from artifacts.errors import InputError
from artifacts.module_copy import copy_module

Batch = dict[str, Tensor]
"""Samples stacked along a new first axis, by name."""


class Lesson(nn.Module):
    """A student, whatever else learns beside it, and the loss.

    Everything that is registered here with gradients is trained. A teacher must not be registered,
    or it would be averaged, saved and sent to other machines with every step.

    Args:
        student: the network whose weights are averaged, probed and kept.
    """

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.student = student

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the terms of the loss (scalars); their sum is minimised."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> "Lesson":
        """Sets the training mode; the student goes on computing what is deployed.

        Many networks answer otherwise while they train (raw maps, further heads, lists of stages),
        which is neither what is compared nor what was pruned. So only normalizations, dropouts and
        PyTorch's own layers change their mode; the student's own code that asks for
        `self.training` goes the way of the evaluation.
        """
        super().train(mode)
        for part in self.student.modules():
            part.training = mode and _is_layer(part)
        return self


def _is_layer(part: nn.Module) -> bool:
    is_own = type(part).__module__.partition(".nn.")[0] == "torch"
    return is_own or isinstance(part, (_NormBase, _DropoutNd))


def copy_lesson(lesson: Lesson) -> Lesson:
    """Returns a lesson of its own with the same teacher."""
    return copy_module(lesson, [one for one in vars(lesson).values() if isinstance(one, nn.Module)])


def require_learning(student: nn.Module) -> None:
    """Checks that some weight of a student learns.

    Raises:
        InputError: all are frozen, as in networks that were built for inference only.
    """
    weights = dict(student.named_parameters())
    if weights and not any(weight.requires_grad for weight in weights.values()):
        raise InputError(
            f"all {len(weights)} weights of the student are frozen (requires_grad is False), so "
            "that nothing would be learned",
            "weights that learn",
            "call requires_grad_(True) where the network is built; freeze only what has to stay",
        )


def find_device(module: nn.Module) -> torch.device:
    """Returns where a module's weights or buffers are; the CPU for one without any."""
    values = chain(module.parameters(), module.buffers())
    return next((value.device for value in values), torch.device("cpu"))
