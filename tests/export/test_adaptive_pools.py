"""Adaptive pools whose windows are unlike are a few nodes."""

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from export.adaptive_pools import average_over, find_pool, find_windows
from export.fp16_check import run_model
from export.to_onnx import export_onnx


@pytest.mark.parametrize(("length", "count"), [(16, 3), (20, 3), (20, 4), (7, 7), (3, 5), (9, 1)])
def test_windows_are_those_of_pytorch(length, count):
    values = torch.rand(1, 1, length)
    wanted = nn.functional.adaptive_avg_pool1d(values, count)[0, 0].numpy()
    found = values[0, 0].numpy() @ average_over(find_windows(length, count))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_windows_of_one_length_and_distance_are_a_pools():
    assert find_pool(find_windows(16, 4)) == (4, 4)
    assert find_pool(find_windows(16, 3)) == (6, 5)
    assert find_pool(find_windows(9, 1)) == (9, 9)
    assert find_pool(find_windows(20, 3)) is None


class Pools(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.pools = nn.ModuleList(nn.AdaptiveAvgPool2d(size) for size in sizes)

    def forward(self, x):
        return torch.cat([pool(x).flatten(1) for pool in self.pools], 1)


@pytest.mark.parametrize(
    ("size", "kinds"),
    [
        ((2, 4), ["AveragePool"]),
        ((3, 4), ["AveragePool"]),
        ((3, 3), ["MatMul", "MatMul"]),
        ((None, 3), ["MatMul"]),
        ((7, 20), ["MatMul"]),
    ],
)
def test_an_adaptive_pool_is_exported_as_a_pool_or_products(size, kinds, tmp_path):
    module = Pools([size])
    path = export_onnx(module, tmp_path / "pool.onnx", input_shape=(1, 8, 16, 20))
    model = onnx.load(path)
    assert [node.op_type for node in model.graph.node if node.op_type != "Reshape"] == kinds
    x = torch.rand(1, 8, 16, 20)
    (found,) = run_model(model, [{"input": x.numpy()}])
    np.testing.assert_allclose(found["output"], module(x).numpy(), rtol=1e-5)


def test_a_pyramid_of_pools_is_a_few_nodes(tmp_path):
    """The four pools of a PSPNet were 400 nodes."""
    module = Pools([1, 2, 3, 6])
    path = export_onnx(module, tmp_path / "pools.onnx", input_shape=(1, 8, 16, 20))
    assert len(onnx.load(path).graph.node) < 12


def test_half_precision_is_averaged_in_float32(tmp_path):
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.AdaptiveAvgPool2d((3, 3))

        def forward(self, x):
            return self.pool(x.half()).float()

    path = export_onnx(Half(), tmp_path / "half.onnx", input_shape=(1, 8, 16, 20))
    model = onnx.load(path)
    assert [node.op_type for node in model.graph.node].count("MatMul") == 2
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize(
    ("pool", "shape", "kinds"),
    [
        (nn.AdaptiveMaxPool2d(3), (1, 4, 16, 20), ["Gather", "MaxPool"]),
        (nn.AdaptiveMaxPool2d((7, 3)), (1, 4, 16, 20), ["Gather", "Gather", "MaxPool"]),
        (nn.AdaptiveMaxPool2d((3, 4)), (1, 4, 16, 20), ["MaxPool"]),
        (nn.AdaptiveMaxPool2d((18, 3)), (1, 4, 16, 20), ["Gather", "Gather", "MaxPool"]),
        (nn.AdaptiveMaxPool2d(1), (1, 4, 16, 20), ["ReduceMax"]),
        (nn.AdaptiveMaxPool2d(3), (4, 16, 20), ["Gather", "Unsqueeze", "MaxPool", "Squeeze"]),
        (nn.AdaptiveMaxPool1d(3), (1, 4, 20), ["Unsqueeze", "Gather", "MaxPool", "Squeeze"]),
        (nn.AdaptiveMaxPool3d(3), (1, 4, 6, 20, 9), ["Gather", "MaxPool"]),
        (nn.AdaptiveAvgPool3d((2, 3, 3)), (1, 4, 6, 9, 6), ["AveragePool"]),
        (nn.AdaptiveAvgPool3d((6, 3, 3)), (1, 4, 6, 20, 6), ["MatMul", "MatMul"]),
        (nn.AdaptiveAvgPool3d(3), (2, 4, 8, 9, 6), [*["MatMul"] * 3, "Reshape", "Reshape"]),
        (nn.AdaptiveAvgPool3d(3), (4, 8, 20, 6), [*["MatMul"] * 3, "Reshape", "Reshape"]),
    ],
)
def test_other_adaptive_pools(pool, shape, kinds, tmp_path):
    notes = []
    path = tmp_path / "pool.onnx"
    export_onnx(pool, path, input_shape=shape, exporters=("torch.export",), notify=notes.append)
    model = onnx.load(path)
    assert sorted(node.op_type for node in model.graph.node) == sorted(kinds)
    x = torch.randn(shape)
    (found,) = run_model(model, [{"input": x.numpy()}])
    np.testing.assert_allclose(found["output"], pool(x).numpy(), rtol=1e-5, atol=1e-6)


def test_maxima_whose_places_are_read_are_exported_by_tracing(tmp_path):
    class Places(nn.Module):
        def forward(self, x):
            return nn.functional.adaptive_max_pool2d(x, (4, 5), return_indices=True)

    path = export_onnx(Places(), tmp_path / "places.onnx", input_shape=(1, 4, 16, 20))
    x = torch.randn(1, 4, 16, 20)
    (found,) = run_model(onnx.load(path), [{"input": x.numpy()}])
    for name, wanted in zip(found, Places()(x), strict=True):
        np.testing.assert_array_equal(found[name], wanted.numpy())
