"""Networks are timed, and those that a runtime refuses are explained."""

import onnx
import pytest
from onnx import TensorProto, helper

from artifacts.errors import InputError
from framefit.network_clock import NetworkClock


def unreadable() -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 4]) for n in ("x", "y")]
    ends[1].type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
    node = helper.make_node("Det", ["x"], ["y"], "det")
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def test_operators_are_named_and_no_temporary_file() -> None:
    with pytest.raises(InputError, match="No conversion rule found for operations: Det-19") as seen:
        NetworkClock("openvino")([unreadable()])
    assert "the network" in str(seen.value)
    assert "lint MODEL --target openvino" in str(seen.value)
    assert "tmp" not in str(seen.value)
