"""The table of operators: one for all exports, and none of them changes it for the next."""

import sys

import pytest

from export.torchlib_table import table_made_once

torch = pytest.importorskip("torch")
MODULE = "torch.onnx._internal.exporter._registration"
RELU = "aten::relu"


@pytest.fixture
def table():
    return pytest.importorskip(MODULE).ONNXRegistry


def test_copies_share_what_was_made_and_change_alone(table) -> None:
    with table_made_once():
        first, second = (table().from_torchlib(opset_version=18) for _ in range(2))
        assert first.functions == second.functions
        assert first.functions[RELU][0] is second.functions[RELU][0]
        first.register_op(torch.ops.aten.relu.default, lambda x: x)
        first.functions.pop("aten::gelu")
        third = table().from_torchlib(opset_version=18)
    assert len(first.functions[RELU]) == len(second.functions[RELU]) + 1
    assert third.functions == second.functions


def test_each_opset_has_a_table_and_torch_gets_its_method_back(table) -> None:
    own = vars(table)["from_torchlib"]
    with table_made_once():
        assert vars(table)["from_torchlib"] is not own
        versions = [table().from_torchlib(opset_version=n).opset_version for n in (18, 19)]
        assert versions == [18, 19]
    assert vars(table)["from_torchlib"] is own


def test_a_torch_without_it_exports_as_ever(table, monkeypatch: pytest.MonkeyPatch) -> None:
    own = vars(table)["from_torchlib"]
    monkeypatch.setitem(sys.modules, MODULE, None)
    with table_made_once():
        assert vars(table)["from_torchlib"] is own
