"""Where OpenVINO computes what stands around a pool otherwise than a graph says.

Seen with OpenVINO 2026.4:

* What follows a Conv and a MaxPool is put into the Conv's kernel, in front of the pool, in float
  and in integers (but not where an integer Conv's rescaling is between the two, for want of a
  bias). That is the same where larger values stay larger, and another result for an activation
  that falls somewhere, such as Abs or SiLU. Factors and summands per channel behind the Conv are
  put into its kernel before it.
* What a quantizer subtracts, its zero point, is moved past what moves values and behind an
  AveragePool, and the integers are padded with 0. That is another number than 0 unless the zero
  point is 0, and the border's means are wrong where they count it.
"""

from collections.abc import Sequence

JOINED_WITH_CONV = frozenset({"Add", "BatchNormalization", "Div", "Identity", "Mul", "Neg", "Sub"})
"""What becomes part of the Conv in front, if all else that it reads is constant."""
FALLING = frozenset({"Abs", "Gelu", "HardSwish", "Mish", "Swish"})
"""Operators whose result is smaller for some larger values."""


def falls_somewhere(readers: Sequence[str]) -> bool:
    """Whether all that is computed of a tensor is one activation that falls where it grows.

    Args:
        readers: the operators that read it. Spelled out, as SiLU and GELU are, several do: they
            multiply it by what they make of it.
    """
    if len(readers) == 1:
        return readers[0] in FALLING
    return "Mul" in readers
