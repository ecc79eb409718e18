import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx

SHAPE = (4, 3, 2, 2)


def make_network(path, indices, count, dims=SHAPE):
    """Writes a Conv whose weight is stored sparsely: the values 1 to `count` at `indices`."""
    sparse = onnx.SparseTensorProto(dims=dims)
    values = np.arange(1, count + 1, dtype=np.float32)
    sparse.values.CopyFrom(numpy_helper.from_array(values, "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.asarray(indices, np.int64), "w_indices"))
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "sparse",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 7, 7))],
        sparse_initializer=[sparse],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("has_coordinates", [True, False])
def test_sparse_weights_become_arrays(has_coordinates, tmp_path):
    places = np.array([3, 17, 40])
    indices = np.stack(np.unravel_index(places, SHAPE), axis=1) if has_coordinates else places
    model = load_onnx(make_network(tmp_path / "a.onnx", indices, 3))
    (weight,) = map(numpy_helper.to_array, model.graph.initializer)
    expected = np.zeros(SHAPE, np.float32)
    expected.flat[places] = (1, 2, 3)
    np.testing.assert_array_equal(weight, expected)


def test_a_sparse_weight_may_be_empty(tmp_path):
    model = load_onnx(make_network(tmp_path / "a.onnx", [], 0))
    assert not numpy_helper.to_array(model.graph.initializer[0]).any()


@pytest.mark.parametrize(
    ("indices", "dims"),
    [
        ([3, 48], SHAPE),
        ([-1, 3], SHAPE),
        ([3], SHAPE),
        ([[0, 0, 0, 0], [4, 0, 0, 0]], SHAPE),
        ([[0, 0], [1, 1]], SHAPE),
        ([[[0]], [[1]]], SHAPE),
        ([3, 17], (1 << 20, 1 << 20, 2, 2)),
        ([3, 17], (-4, -3, 2, 2)),
    ],
)
def test_sparse_weights_that_cannot_be_are_refused(indices, dims, tmp_path):
    with pytest.raises(InputError, match="sparse weight 'w'"):
        load_onnx(make_network(tmp_path / "a.onnx", indices, 2, dims))
