"""Where OpenVINO moves the rescaling of an integer layer to, and reads it wrongly.

A layer in integers is rescaled by one factor per channel. OpenVINO (seen with 2026.4) moves these
factors behind what follows, towards the next quantizer:

* A Gather whose indices are a number or have several axes takes an axis away or adds some; the
  factors keep those that they had. Values get those of other channels, the result gets an axis too
  many, or the network is refused.
* Behind a MatMul the channels are the last axis. An axis of length 1 that is put behind them, and
  pooling or resizing along them, lead to the same.
* Behind a convolution without a bias and a ReLU or LeakyReLU (a PReLU behind a ConvTranspose) a
  negative factor (-x, 1 - x) is joined with them, and computed before the activation: ReLU(-x) for
  -ReLU(x).
"""

from collections.abc import Sequence

import onnx

ACTIVATIONS = frozenset({"LeakyRelu", "PRelu", "Relu"})
CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
PASSED = frozenset({"Add", "Div", "Gather", "Identity", "Mul", "Neg", "Pad", "Slice", "Sub"})
"""What a MatMul's rescaling is moved past, if nothing else is computed that it reads."""
_POOLING = frozenset({"AveragePool", "MaxPool", "Resize"})
_VIEWS = frozenset({"Reshape", "Unsqueeze"})


def misreads_last_channels(
    node: onnx.NodeProto, data: Sequence[int] | None, result: Sequence[int] | None
) -> bool:
    """Whether a node pools or resizes the last axis of what it reads, or puts others behind it.

    Args:
        node: of any operator.
        data: shape of its first input; None or empty if unknown.
        result: shape of its output.
    """
    if not data or not result:
        return False
    if node.op_type in _VIEWS:
        added = len(result) - len(data)
        return added > 0 and tuple(result) == (*data, *(1,) * added)
    return node.op_type in _POOLING and len(data) > 2
