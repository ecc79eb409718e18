"""Adaptive pools, as one pool, as products with constants, or as a MaxPool of gathered places.

PyTorch divides an axis of n places into m windows, from floor(i·n / m) to before
ceil((i + 1)·n / m). Where m divides n these are an AveragePool's. Elsewhere `torch.export` writes
places, masks and a sum of its own for each place in a window: hundreds of nodes for the four pools
of a PSPNet. But a mean is linear: y = A_h · x · A_w, where column j of A_w holds 1 / (length of
window j) in the places of window j. A maximum does not change where places are repeated, so the
places of windows that are made equally long are gathered side by side, and pooled.
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


def gather_windows(windows: Sequence[Window]) -> NDArray[np.int64]:
    """Returns places that put equally long windows side by side: short ones repeat their last."""
    longest = max(stop - start for start, stop in windows)
    return np.array([min(start + at, stop - 1) for start, stop in windows for at in range(longest)])


def write_adaptive_pool(x: Any, sizes: Sequence[int]) -> Any:
    """Writes `aten._adaptive_avg_pool2d` and `3d` where the exporter asks for it.

    Args:
        x: what the exporter traces, [N, C, (D,) H, W] or [C, (D,) H, W] of any float type, whose
            products are summed in float32; the pooled axes' lengths are known.
        sizes: (depth,) height and width of the result.
    """
    from onnxscript import opset19

    windows = _find_all_windows(x, sizes)
    pools = [find_pool(axis) for axis in windows]
    if len(x.shape) == len(sizes) + 2 and None not in pools:
        kernels, strides = zip(*(pool for pool in pools if pool), strict=True)
        return opset19.AveragePool(x, kernel_shape=list(kernels), strides=list(strides))
    kind = int(x.dtype)
    is_cast = kind != onnx.TensorProto.FLOAT
    shape = [int(size) for size in x.shape]
    if is_cast:
        x = opset19.Cast(x, to=onnx.TensorProto.FLOAT)
    *depth, height, width = windows
    if not _keeps_all(width):
        x = opset19.MatMul(x, _constant(average_over(width)))
    if not _keeps_all(height):
        x = opset19.MatMul(_constant(average_over(height).T), x)
    for axis in depth:
        if not _keeps_all(axis):
            x = _average_depth(x, axis, [*shape[:-2], *sizes[-2:]])
    return opset19.Cast(x, to=kind) if is_cast else x


def _average_depth(x: Any, windows: Sequence[Window], shape: Sequence[int]) -> Any:
    """Averages the third axis from the end, of a tensor of this shape, as a product of matrices."""
    from onnxscript import opset19

    *outer, depth, height, width = shape
    rows = _constant(np.array([*outer, depth, height * width]))
    x = opset19.MatMul(_constant(average_over(windows).T), opset19.Reshape(x, rows))
    return opset19.Reshape(x, _constant(np.array([*outer, len(windows), height, width])))


def write_adaptive_max_pool(x: Any, sizes: Sequence[int]) -> tuple[Any]:
    """Writes `aten.adaptive_max_pool2d` and `3d`, without the places of the maxima.

    Args:
        x: what the exporter traces, [N, C, (D,) H, W] or [C, (D,) H, W]; the pooled axes' lengths
            are known.
        sizes: (depth,) height and width of the result.
    """
    from onnxscript import opset19

    if set(sizes) == {1}:
        return (opset19.ReduceMax(x, _constant(np.arange(-len(sizes), 0))),)
    kernels, strides, rank = [], [], len(x.shape)
    for axis, windows in enumerate(_find_all_windows(x, sizes), -len(sizes)):
        pool = find_pool(windows)
        if pool is None:
            places = gather_windows(windows)
            x = opset19.Gather(x, _constant(places), axis=axis)
            pool = (len(places) // len(windows),) * 2
        kernels.append(pool[0])
        strides.append(pool[1])
    has_batch = rank == len(sizes) + 2
    front = _constant(np.array([0]))
    batch = x if has_batch else opset19.Unsqueeze(x, front)
    pooled, _ = opset19.MaxPool(batch, kernel_shape=kernels, strides=strides)
    return (pooled if has_batch else opset19.Squeeze(pooled, front),)


def _find_all_windows(x: Any, sizes: Sequence[int]) -> list[list[Window]]:
    lengths = x.shape[-len(sizes) :]
    return [find_windows(int(n), count) for n, count in zip(lengths, sizes, strict=True)]


def _keeps_all(windows: Sequence[Window]) -> bool:
    return len(windows) == windows[-1][1]


def _constant(matrix: NDArray[Any]) -> Any:
    from onnx import numpy_helper
    from onnxscript import opset19

    return opset19.Constant(value=numpy_helper.from_array(np.ascontiguousarray(matrix)))
