"""Adaptive average pools, as one AveragePool or two products with constants.

PyTorch divides an axis of n places into m windows, from floor(i·n / m) to before
ceil((i + 1)·n / m). Where m divides n these are an AveragePool's. Elsewhere `torch.export` writes
places, masks and a sum of its own for each place in a window: hundreds of nodes for the four pools
of a PSPNet. But a mean is linear: y = A_h · x · A_w, where column j of A_w holds 1 / (length of
window j) in the places of window j.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

Window = tuple[int, int]


def find_windows(length: int, count: int) -> list[Window]:
    """Returns where each of `count` windows over `length` places begins, and before what it ends.

    See `torch.nn.AdaptiveAvgPool2d`.
    """
    return [(i * length // count, -((i + 1) * -length // count)) for i in range(count)]


def find_pool(windows: Sequence[Window]) -> tuple[int, int] | None:
    """Returns the kernel and the stride with which a pool has these windows; None if none has."""
    size = windows[0][1] - windows[0][0]
    stride = windows[1][0] if len(windows) > 1 else size
    regular = [(at * stride, at * stride + size) for at in range(len(windows))]
    return (size, stride) if windows == regular else None


def average_over(windows: Sequence[Window]) -> NDArray[np.float32]:
    """Returns the matrix [places, windows] with which a product averages over each window."""
    matrix = np.zeros((windows[-1][1], len(windows)), np.float32)
    for column, (start, stop) in enumerate(windows):
        matrix[start:stop, column] = 1 / (stop - start)
    return matrix


def write_adaptive_pool(x: Any, sizes: Sequence[int]) -> Any:
    """Writes `aten._adaptive_avg_pool2d` where the exporter asks for it.

    Args:
        x: what the exporter traces, [N, C, H, W] or [C, H, W] of any float type, whose products
            are summed in float32; height and width are known.
        sizes: height and width of the result.
    """
    from onnxscript import opset19

    height, width = (find_windows(int(x.shape[at]), sizes[at]) for at in (-2, -1))
    pools = find_pool(height), find_pool(width)
    if len(x.shape) == 4 and None not in pools:
        kernels, strides = zip(*(pool for pool in pools if pool), strict=True)
        return opset19.AveragePool(x, kernel_shape=list(kernels), strides=list(strides))
    kind = int(x.dtype)
    is_cast = kind != onnx.TensorProto.FLOAT
    if is_cast:
        x = opset19.Cast(x, to=onnx.TensorProto.FLOAT)
    if not _keeps_all(width):
        x = opset19.MatMul(x, _constant(average_over(width)))
    if not _keeps_all(height):
        x = opset19.MatMul(_constant(average_over(height).T), x)
    return opset19.Cast(x, to=kind) if is_cast else x


def _keeps_all(windows: Sequence[Window]) -> bool:
    return len(windows) == windows[-1][1]


def _constant(matrix: NDArray[np.float32]) -> Any:
    from onnx import numpy_helper
    from onnxscript import opset19

    return opset19.Constant(value=numpy_helper.from_array(np.ascontiguousarray(matrix)))
