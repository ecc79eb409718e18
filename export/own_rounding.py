"""How far a module's float32 outputs are from the exact ones, by rounding alone."""

import numpy as np
import torch
from torch import Tensor, nn

from artifacts.module_copy import copy_module
from export.outputs import flatten_outputs

MAX_SHARE = 0.01
"""A network whose own rounding moves an output by more of its peak cannot be checked at all."""


@torch.no_grad()
def measure_own_rounding(
    module: nn.Module,
    samples: list[dict[str, Tensor]],
    wanted: list[dict[str, np.ndarray]],
    order: tuple[str, ...],
) -> dict[str, float]:
    """Compares a module with itself computed in float64.

    Networks amplify rounding errors, some a thousandfold; another order of the same additions, such
    as an export has, then changes an output by more than a fixed tolerance.

    Args:
        module: float32, in evaluation mode.
        samples: inputs by name, in the order of the module's arguments.
        wanted: its outputs in float32, per sample.
        order: as for `flatten_outputs`.

    Returns:
        the largest absolute difference of each output, at most `MAX_SHARE` of its peak; empty where
        the module cannot be computed in float64.
    """
    errors: dict[str, float] = {}
    try:
        exact = copy_module(module).double()
        for sample, reference in zip(samples, wanted, strict=True):
            inputs = [x.double() if x.is_floating_point() else x for x in sample.values()]
            for name, value in flatten_outputs(exact(*inputs), order):
                peak = float(np.abs(reference[name]).max(initial=0.0))
                error = float(np.abs(value.cpu().numpy() - reference[name]).max(initial=0.0))
                errors[name] = max(errors.get(name, 0.0), min(error, MAX_SHARE * peak))
    except Exception:
        return {}
    return errors
