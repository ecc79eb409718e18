"""What is written at the places of a mask is chosen by the mask."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from export.exporters import EXPORTERS, export_with
from export.fp16_check import run_model
from export.masked_writes import select_masked_writes


class RowsByMask(nn.Module):
    """Writes rows of numbers and of truth values, as OneFormer opens masks that hide everything."""

    def forward(self, x):
        rows = x.sum(-1) < 0
        numbers = x * 2
        numbers[torch.where(rows)] = -1.5
        hidden = x < 0
        hidden[torch.where(rows)] = False
        shown = x < 0
        shown[torch.where(rows)] = True
        return numbers, hidden.float(), shown.float()


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_rows_written_by_a_mask_need_no_list_of_positions(exporter):
    names = ["numbers", "hidden", "shown"]
    x = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    model = export_with(exporter, RowsByMask(), [x], ["x"], names)
    assert not {"NonZero", "ScatterND"} & {node.op_type for node in model.graph.node}
    (got,) = run_model(model, [{"x": x.numpy()}])
    wanted = RowsByMask()(x)
    assert 0 < float((wanted[0] == -1.5).float().mean()) < 1
    for name, value in zip(names, wanted, strict=True):
        np.testing.assert_array_equal(got[name], value.numpy())


def make_scatter(update_shape, order=(0, 1), reduction="none"):
    """Returns x → NonZero(x > 0) → a scatter of "update" or of 3 at these positions → y."""
    columns = [
        helper.make_node("Gather", ["turned", f"c{axis}"], [f"g{axis}"], axis=1) for axis in order
    ]
    rows = [helper.make_node("Unsqueeze", [f"g{axis}", "c1"], [f"u{axis}"]) for axis in order]
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["mask"]),
        helper.make_node("NonZero", ["mask"], ["list"]),
        helper.make_node("Transpose", ["list"], ["turned"], perm=[1, 0]),
        *columns,
        *rows,
        helper.make_node("Concat", [f"u{axis}" for axis in order], ["places"], axis=1),
        helper.make_node("Shape", [f"g{order[0]}"], ["count"]),
        helper.make_node("Expand", ["update", "count"], ["updates"]),
        helper.make_node("ScatterND", ["x", "places", "updates"], ["y"], reduction=reduction),
    ]
    held = {"zero": np.float32(0), "c0": np.array(0), "c1": np.array(1)}
    if not update_shape:
        held["update"] = np.float32(3)
    infos = {"x": (4, 4)} | ({"update": update_shape} if update_shape else {})
    graph = helper.make_graph(
        nodes,
        "scatter",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, infos[name]) for name in infos],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 4))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_columns_of_positions_in_their_order_are_the_mask():
    model = make_scatter(())
    written = select_masked_writes(model)
    assert [node.op_type for node in written.graph.node] == ["Greater", "Cast", "Where"]
    onnx.checker.check_model(written, full_check=True)
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    (wanted,), (got,) = (run_model(item, [{"x": x}]) for item in (model, written))
    np.testing.assert_array_equal(got["y"], wanted["y"])


@pytest.mark.parametrize(
    "changes",
    [{"update_shape": (1,)}, {"order": (1, 0)}, {"reduction": "add"}],
    ids=["a value that is not known", "positions turned around", "sums"],
)
def test_other_writes_stay(changes):
    model = make_scatter(**{"update_shape": (), **changes})
    assert select_masked_writes(model) is model
