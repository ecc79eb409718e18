"""Weights that a file stores sparsely, as arrays like all others."""

import math
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from artifacts.errors import InputError
from artifacts.external_data import MAX_MODEL_BYTES


def store_densely(graph: onnx.GraphProto, path: Path) -> None:
    """Turns the sparse initializers of a graph into ordinary ones; no runtime here gains by them.

    Args:
        graph: with its external data loaded; it is edited.
        path: its file, for the errors.

    Raises:
        InputError: a weight would be larger than a model may be, or has values outside of itself.
    """
    graph.initializer.extend(_expand(sparse, path) for sparse in graph.sparse_initializer)
    del graph.sparse_initializer[:]


def _expand(sparse: onnx.SparseTensorProto, path: Path) -> onnx.TensorProto:
    name = f"the sparse weight '{sparse.values.name}' of {path}"
    values = numpy_helper.to_array(sparse.values).reshape(-1)
    size = math.prod(sparse.dims)
    if any(dim < 1 for dim in sparse.dims) or size * values.itemsize > MAX_MODEL_BYTES:
        raise InputError(f"{name} has the shape {list(sparse.dims)}", "one of at most 2 GiB")
    places = _find_places(sparse)
    if places is None or places.shape != values.shape:
        raise InputError(
            f"{name} has indices that are no places of its {values.size} values",
            f"one within {list(sparse.dims)} for each",
        )
    dense = np.zeros(size, values.dtype)
    dense[places] = values
    return numpy_helper.from_array(dense.reshape(tuple(sparse.dims)), sparse.values.name)


def _find_places(sparse: onnx.SparseTensorProto) -> NDArray[np.int64] | None:
    """Returns where the values belong in the flattened weight; None if outside of it.

    Indices are such places, or one row of coordinates for each value.
    """
    indices = numpy_helper.to_array(sparse.indices).astype(np.int64)
    dims = tuple(sparse.dims) if indices.ndim > 1 else (math.prod(sparse.dims),)
    rows = indices if indices.ndim > 1 else indices.reshape(-1, 1)
    if rows.shape[1:] != (len(dims),) or not ((rows >= 0) & (rows < dims)).all():
        return None
    return np.asarray(np.ravel_multi_index(tuple(rows.T), dims), np.int64)
