"""Nodes are put into an order in which each follows what it reads; the network stays the same."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from artifacts.node_order import sort_nodes
from artifacts.onnx_file import load_onnx

NODE = helper.make_node
CHAIN = [
    NODE("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
    NODE("Relu", ["half"], ["positive"]),
    NODE("Abs", ["half"], ["size"]),
    NODE("Add", ["positive", "size"], ["sum"]),
    NODE("Cast", ["sum"], ["y"], to=TensorProto.FLOAT),
]


def value(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [1, 3, 8, 8] if kind == 1 else [])


@pytest.mark.parametrize("order", [(1, 2, 3, 4, 0), (4, 3, 2, 1, 0), (3, 0, 4, 2, 1)])
def test_file_whose_casts_come_last_is_loaded_in_order(
    tmp_path: Path, make_model, order: tuple[int, ...]
) -> None:
    path = tmp_path / "half.onnx"
    model = make_model([CHAIN[at] for at in order], weights={}, output=[1, 3, 8, 8])
    path.write_bytes(model.SerializeToString())
    loaded = load_onnx(path)
    onnx.checker.check_model(loaded, full_check=True)
    assert sorted(node.op_type for node in loaded.graph.node) == sorted(
        node.op_type for node in CHAIN
    )


def test_what_is_in_order_does_not_move() -> None:
    nodes = [CHAIN[at] for at in (0, 2, 1, 3, 4)]
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")])
    before = graph.SerializeToString(deterministic=True)
    sort_nodes(graph)
    assert graph.SerializeToString(deterministic=True) == before


def test_what_a_branch_reads_from_outside_comes_before_it() -> None:
    branch = helper.make_graph(
        [NODE("Neg", ["inner"], ["z"]), NODE("Relu", ["late"], ["inner"])], "b", [], [value("z")]
    )
    other = helper.make_graph([NODE("Abs", ["x"], ["o"])], "o", [], [value("o")])
    nodes = [
        NODE("If", ["choice"], ["y"], then_branch=branch, else_branch=other),
        NODE("Sqrt", ["x"], ["late"]),
    ]
    inputs = [value("x"), value("choice", TensorProto.BOOL)]
    graph = helper.make_graph(nodes, "g", inputs, [value("y")])
    sort_nodes(graph)
    assert [node.op_type for node in graph.node] == ["Sqrt", "If"]
    onnx.checker.check_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_long_graph_in_reverse_is_sorted_without_deep_recursion() -> None:
    count = 3000
    nodes = [NODE("Relu", [f"t{at}"], [f"t{at + 1}"]) for at in np.arange(count)[::-1]]
    graph = helper.make_graph(nodes, "g", [value("t0")], [value(f"t{count}")])
    sort_nodes(graph)
    assert [node.input[0] for node in graph.node] == [f"t{at}" for at in range(count)]
