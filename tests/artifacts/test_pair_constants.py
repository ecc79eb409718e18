"""Row 61: scales and zero points that contradict each other, which OpenVINO reads all the same."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from framefit.network_check import check_network

i8, u8, f32 = np.int8, np.uint8, np.float32


def save(path, quantize, dequantize, weight, axis=0):
    """Writes x -> Q -> DQ -> Add(DQ(weight)); each of the three is (scales, zero points)."""
    nodes, constants = [], {"w": np.ones((4, 3), i8)}
    for name, operator, read, (scales, points) in (
        ("q", "QuantizeLinear", "x", quantize),
        ("d", "DequantizeLinear", "q", dequantize),
        ("v", "DequantizeLinear", "w", weight),
    ):
        inputs = [read, f"{name}_scale"]
        constants[f"{name}_scale"] = np.asarray(scales, f32)
        if points is not None:
            constants[f"{name}_zero"] = points
            inputs.append(f"{name}_zero")
        nodes.append(helper.make_node(operator, inputs, [name], name, axis=axis))
    nodes.append(helper.make_node("Add", ["d", "v"], ["y"]))
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4, 3]) for n in "xy"]
    weights = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


GOOD = {
    "quantize": (0.1, i8(0)),
    "dequantize": (0.1, i8(0)),
    "weight": ([0.1] * 4, np.zeros(4, i8)),
}
FOUR = np.zeros(4, i8)


@pytest.mark.parametrize("read", [load_onnx, check_network])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dequantize": (0.1, u8(0))}, "node 'd' of .* reads INT8 with a zero point of type UINT8"),
        ({"quantize": (0.1, None)}, "node 'd' of .* reads UINT8 with a zero point of type INT8"),
        ({"weight": ([0.1] * 4, FOUR.view(u8))}, "node 'v' of .* reads INT8 with a zero point"),
        ({"weight": ([0.1] * 3, None)}, r"has 3 scales along axis 0 of the shape \[4, 3\]"),
        ({"weight": ([0.1] * 4, None), "axis": 1}, "has 4 scales along axis 1"),
        ({"weight": ([0.1] * 4, FOUR), "axis": 5}, "has 4 scales along axis 5"),
        ({"weight": ([0.1] * 4, FOUR[:3])}, "node 'v' of .* has 4 scales and 3 zero points"),
        ({"quantize": (0.1, FOUR)}, "node 'q' of .* has 1 scale and 4 zero points"),
    ],
)
def test_constants_that_contradict_each_other_are_refused(tmp_path, change, message, read):
    path = save(tmp_path / "m.onnx", **{**GOOD, **change})
    with pytest.raises(InputError, match=message):
        read(path)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"weight": ([0.1] * 4, None)},
        {"weight": ([0.1] * 3, None), "axis": -1},
        {"weight": ([0.1], None)},
        {"quantize": (0.1, u8(3)), "dequantize": (0.1, u8(3))},
    ],
)
def test_others_are_taken(tmp_path, change):
    path = save(tmp_path / "m.onnx", **{**GOOD, **change})
    load_onnx(path)
    check_network(path)
