import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from artifacts.errors import InputError
from latency_budget.why.node_costs import count_network

sys.path.insert(0, str(Path(__file__).parent))
from small_networks import FLOAT, build, quantized_conv, two_heads


def costs_of(model):
    return {node.name: node for node in count_network(model).nodes}


def one_node(kind, shapes, result, weights=(), opset=17, **attributes):
    names = [f"x{index}" for index in range(len(shapes))]
    model = build(
        [("node", kind, [*names, *(name for name, _ in weights)], ["y"], attributes)],
        {name: (shape, FLOAT) for name, shape in zip(names, shapes, strict=True)},
        {"y": (result, FLOAT)},
        weights,
        opset,
    )
    return count_network(model).nodes[0]


@settings(deadline=None)
@given(
    batch=st.integers(1, 2),
    groups=st.sampled_from([1, 2, 4]),
    kernel=st.sampled_from([1, 3]),
    stride=st.sampled_from([1, 2]),
)
def test_a_convolution_multiplies_each_output_with_its_window(batch, groups, kernel, stride):
    weight = np.zeros((8, 4 // groups * 2, kernel, kernel), np.float32)
    side = (16 - kernel) // stride + 1
    node = one_node(
        "Conv",
        [(batch, 8 if groups == 1 else 4 // groups * 2 * groups, 16, 16)],
        (batch, 8, side, side),
        [("w", weight)],
        group=groups,
        strides=[stride, stride],
    )
    assert node.macs == batch * 8 * side * side * weight[0].size
    assert node.operations == 2 * node.macs
    assert node.weight_bytes == weight.nbytes


def test_a_transposed_convolution_multiplies_each_input_with_its_window():
    weight = np.zeros((6, 5, 2, 2), np.float32)
    node = one_node("ConvTranspose", [(1, 6, 4, 4)], (1, 5, 8, 8), [("w", weight)], strides=[2, 2])
    assert node.macs == 6 * 4 * 4 * 5 * 2 * 2


@pytest.mark.parametrize(("transposed", "shape"), [(0, (3, 7)), (1, (7, 3))])
def test_gemm_counts_its_depth_once(transposed, shape):
    node = one_node(
        "Gemm", [shape], (3, 5), [("w", np.zeros((7, 5), np.float32))], transA=transposed
    )
    assert node.macs == 3 * 5 * 7


def test_the_field_guides_matrix_product_is_1365_operations_per_byte():
    kind = TensorProto.BFLOAT16
    model = build(
        [("node", "MatMul", ["a", "b"], ["y"], {})],
        {"a": ((4096, 4096), kind), "b": ((4096, 4096), kind)},
        {"y": ((4096, 4096), kind)},
    )
    node = count_network(model).nodes[0]
    assert node.operations == 2 * 4096**3
    assert node.precision == "fp16"
    assert node.intensity == pytest.approx(1365.3, abs=0.05)


def test_the_field_guides_layer_norm_is_a_third_of_an_operation_per_byte():
    ones = np.ones(1024, np.float32)
    node = one_node(
        "LayerNormalization",
        [(64, 1024)],
        (64, 1024),
        [("scale", ones), ("bias", ones)],
        axis=-1,
    )
    count = 64 * 1024
    assert node.operations == 4 * count
    assert node.read_bytes + node.write_bytes == 12 * count
    assert node.intensity == pytest.approx(0.33, abs=0.01)


def test_quantized_tensors_move_one_byte_per_element():
    nodes = costs_of(quantized_conv())
    conv = nodes["conv"]
    assert conv.precision == "int8"
    assert conv.read_bytes == 8 * 16 * 16
    assert conv.weight_bytes == 16 * 8 * 9
    assert nodes["pool"].read_bytes == 16 * 16 * 16
    assert "dq" not in nodes


def test_a_fused_chain_keeps_its_tensors_out_of_memory():
    costs = count_network(quantized_conv())
    kernels = {kernel.name: kernel for kernel in costs.kernels}
    assert kernels["conv"].nodes == ("conv", "q2")
    scale_and_zero = 4 + 1
    assert kernels["conv"].moved_bytes == 8 * 256 + 16 * 72 + 16 * 256 + scale_and_zero
    assert costs.moved_bytes < sum(node.moved_bytes for node in costs.nodes)
    assert sum(kernel.operations for kernel in costs.kernels) == costs.operations


def test_work_is_summed_by_owner():
    owners = count_network(two_heads()).owners()
    assert set(owners) == {"trunk", "a", "b"}
    assert owners["trunk"]["macs"] == 16 * 32 * 32 * 27
    assert owners["a"]["macs"] == 2 * owners["b"]["macs"] == 8 * 32 * 32 * 16


def test_unknown_operators_are_named_and_not_guessed():
    model = build(
        [("node", "Det", ["x"], ["y"], {})], {"x": ((2, 3, 3), FLOAT)}, {"y": ((2,), FLOAT)}
    )
    assert count_network(model).unknown == ("Det",)


def test_what_follows_suppressed_boxes_is_named_and_not_guessed():
    """How many boxes there are depends on the picture."""
    model = build(
        [
            ("relu", "Relu", ["scores"], ["r"], {}),
            ("choose", "NonMaxSuppression", ["boxes", "r", "most"], ["chosen"], {}),
            ("places", "Slice", ["chosen", "from", "to", "to"], ["place"], {}),
            ("take", "GatherND", ["r", "chosen"], ["kept"], {}),
        ],
        {"boxes": ((1, 20, 4), FLOAT), "scores": ((1, 2, 20), FLOAT)},
        {"kept": (("boxes",), FLOAT), "place": (("boxes", 1), TensorProto.INT64)},
        [(name, np.array([place])) for place, name in enumerate(("from", "to", "most"))],
    )
    costs = count_network(model)
    assert costs.unknown == ("NonMaxSuppression", "Slice", "GatherND")
    (relu,) = costs.nodes
    assert (relu.name, relu.read_bytes) == ("relu", 4 * 40)


def test_an_unknown_shape_is_an_error_that_says_what_to_do():
    model = build(
        [("node", "Relu", ["x"], ["y"], {})],
        {"x": (("batch", 3), FLOAT)},
        {"y": (("batch", 3), FLOAT)},
    )
    with pytest.raises(InputError, match="--input-shape"):
        count_network(model)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "published_gmacs"),
    [
        ("resnet18", 1.82),
        pytest.param("regnetx_032", 3.2, marks=pytest.mark.slow),
        pytest.param("vit_small_patch16_224", 4.61, marks=pytest.mark.slow),
    ],
)
def test_counts_are_those_that_timm_publishes(name, published_gmacs, tmp_path):
    """`benchmarks/roofline_counts.py` holds ten networks to this."""
    timm, torch = pytest.importorskip("timm"), pytest.importorskip("torch")
    from artifacts.onnx_file import load_onnx

    network = timm.create_model(name, pretrained=False).eval()
    path = tmp_path / "network.onnx"
    torch.onnx.export(network, (torch.zeros(1, 3, 224, 224),), path, dynamo=False, opset_version=17)
    costs = count_network(load_onnx(path))
    assert costs.macs / 1e9 == pytest.approx(published_gmacs, rel=0.01)
    assert not costs.unknown
