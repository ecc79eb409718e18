"""Constants per channel that lead OpenVINO's plugin for CPUs to another memory layout.

Between a constant [C, 1, 1] and an activation [N, C, H, W], whose ranks differ, OpenVINO (seen with
2026.4) computes channel by channel, and reorders the activation before and after.
"""

import math

BROADCASTING = frozenset({"PRelu", "Add", "Sub", "Mul", "Div", "Max", "Min"})


def changes_layout(constant: tuple[int, ...], rank: int) -> bool:
    """Whether a constant of that shape is per channel and has fewer axes than the activation.

    Args:
        constant: its shape.
        rank: how many axes the activation has.
    """
    return math.prod(constant) > 1 and constant[-1] == 1 < len(constant) < rank
