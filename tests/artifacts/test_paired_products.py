"""Which products are added in 16 bits."""

import numpy as np
import pytest
from onnx import helper

from artifacts.paired_products import LayerProducts, sum_pairs


@pytest.mark.parametrize(
    ("weight", "axis", "groups", "partners"),
    [
        ((8, 4, 1, 1), 0, 1, [1, 0, 3, 2]),
        ((8, 3, 1, 1), 0, 1, [1, 0, -1]),
        ((8, 2, 1, 3), 0, 1, [3, 4, 5, 0, 1, 2]),
        ((8, 3, 1, 2), 0, 1, [2, 3, 0, 1, -1, -1]),
        ((8, 2, 1, 1), 0, 4, [1, 0]),
        ((4, 8), 1, 1, [1, 0, 3, 2]),
        ((4, 2, 1, 1), 1, 2, [1, 0, 3, 2]),
    ],
)
def test_neighbouring_channels_are_partners(weight, axis, groups, partners) -> None:
    found = LayerProducts(weight, axis, groups).find_partners()
    assert found.tolist() == partners


@pytest.mark.parametrize(
    ("runtime", "groups", "partners"),
    [
        ("openvino", 1, [2, 3, 0, 1, -1, -1]),
        ("openvino", 2, [2, 4, 0, 5, 1, 3]),
        ("onnxruntime", 1, [2, 4, 0, 5, 1, 3]),
    ],
)
def test_odd_numbers_of_channels_pair_positions_where_a_runtime_does(
    runtime, groups, partners
) -> None:
    """Row: channel 0 at both positions, channel 1, channel 2."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=groups)
    layer = LayerProducts.of(node, (8, 3, 1, 2), runtime)
    assert layer.find_partners().tolist() == partners


def test_products_of_other_ranks_are_not_known() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    assert LayerProducts.of(node, (2, 4, 4), "openvino") is None
    assert LayerProducts.of(node, (4, 8), "openvino") == LayerProducts((4, 8), 1)


def test_depthwise_layers_have_no_pairs() -> None:
    assert not LayerProducts((16, 1, 3, 3), 0, 16).has_pairs
    assert not LayerProducts((16, 1, 3, 3), 1, 16).has_pairs
    assert LayerProducts((16, 2, 3, 3), 0, 8).has_pairs


@pytest.mark.parametrize(
    ("runtime", "groups", "has_pairs"),
    [
        ("openvino", 1, False),
        ("onnxruntime", 1, True),
        ("openvino", 8, True),
        ("onnxruntime", 8, True),
        ("openvino", 16, False),
        ("onnxruntime", 16, False),
    ],
)
def test_single_channels_pair_positions_where_a_runtime_does(runtime, groups, has_pairs) -> None:
    """A picture in gray on onnxruntime, and two outputs for each channel on both."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=groups)
    layer = LayerProducts.of(node, (16, 1, 1, 3), runtime)
    assert layer.has_pairs == has_pairs
    if has_pairs:
        assert layer.find_partners().tolist() == [1, 0, -1]
        assert layer.count_overflowing(np.full(layer.shape, 127, np.int8)) == 16


def test_sums_are_of_what_is_positive() -> None:
    rows, partners = np.array([[3, -4, 5]]), np.array([1, 0, -1])
    assert sum_pairs(rows, partners).tolist() == [[3, 3, 5]]


@pytest.mark.parametrize(
    ("weight", "groups", "count"),
    [
        ([[127, 1], [64, 64], [-64, -64], [127, -127]], 1, 0),
        ([[127, 2], [-65, -64], [100, 27]], 1, 2),
        ([[127, 127, 127]], 1, 1),
        ([[127], [127]], 2, 0),
    ],
)
def test_pairs_of_one_sign_beyond_128_overflow(weight, groups, count) -> None:
    integers = np.array(weight, np.int8)[:, :, None]
    assert LayerProducts(integers.shape, 0, groups).count_overflowing(integers) == count
