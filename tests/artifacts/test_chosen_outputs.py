"""Networks that end where it is asked for."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.chosen_outputs import keep_outputs
from artifacts.errors import InputError
from artifacts.onnx_metadata import HEADS_KEY, read_metadata
from artifacts.shape_inference import infer_shapes

HEADS = {"near": {"outputs": ["a", "b"]}, "far": {"outputs": ["c"]}}


def _branches() -> onnx.ModelProto:
    """A trunk, three outputs, and a second input that only `c` reads; `b` goes through an If."""
    value = helper.make_tensor_value_info
    then, other = (
        helper.make_graph(
            [helper.make_node(operator, ["t"], [f"{operator}_out"])],
            operator,
            [],
            [value(f"{operator}_out", TensorProto.FLOAT, [2, 3])],
        )
        for operator in ("Exp", "Neg")
    )
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "one"], ["t"], "trunk"),
            helper.make_node("Relu", ["t"], ["a"], "first"),
            helper.make_node("If", ["yes"], ["b"], "second", then_branch=then, else_branch=other),
            helper.make_node("Mul", ["y", "two"], ["m"], "scaled"),
            helper.make_node("Add", ["m", "t"], ["c"], "third"),
        ],
        "branches",
        [value("x", TensorProto.FLOAT, [2, 3]), value("y", TensorProto.FLOAT, [2, 3])],
        [value(name, TensorProto.FLOAT, [2, 3]) for name in "abc"],
        [
            numpy_helper.from_array(np.float32(1), "one"),
            numpy_helper.from_array(np.float32(2), "two"),
            numpy_helper.from_array(np.bool_(True), "yes"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {HEADS_KEY: json.dumps(HEADS), "own": "stays"})
    return infer_shapes(model)


def _run(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.ones((2, 3), np.float32)}
    read = {item.name: feeds[item.name] for item in session.get_inputs()}
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, read), strict=True))


@pytest.mark.parametrize(
    ("names", "nodes", "inputs", "weights", "heads"),
    [
        (["c"], ["trunk", "scaled", "third"], ["x", "y"], ["one", "two"], ["far"]),
        (["b"], ["trunk", "second"], ["x"], ["one", "yes"], []),
        (["b", "a"], ["trunk", "first", "second"], ["x"], ["one", "yes"], ["near"]),
        (["m", "t"], ["trunk", "scaled"], ["x", "y"], ["one", "two"], []),
    ],
    ids=["one", "through a subgraph", "another order", "tensors inside"],
)
def test_what_the_kept_outputs_need_stays(
    names: list[str], nodes: list[str], inputs: list[str], weights: list[str], heads: list[str]
) -> None:
    whole, model = _branches(), _branches()
    if "m" in names:
        whole.graph.output.extend(item for item in whole.graph.value_info if item.name in names)

    keep_outputs(model, names)

    onnx.checker.check_model(model, full_check=True)
    assert [node.name for node in model.graph.node] == nodes
    assert [item.name for item in model.graph.input] == inputs
    assert [item.name for item in model.graph.initializer] == weights
    metadata = read_metadata(model)
    assert list(json.loads(metadata[HEADS_KEY])) == heads
    assert metadata["own"] == "stays"
    found, wanted = _run(model), _run(whole)
    assert list(found) == names
    for name in names:
        np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a", "d"], "'d' is no output or tensor of the network; expected a, b, c, t, m$"),
        (["x"], "'x' is no output"),
        (["one"], "'one' is no output"),
        (["a", "a"], "'a' is asked for twice"),
    ],
)
def test_what_is_no_output_is_refused(names: list[str], text: str) -> None:
    model = _branches()
    before = model.SerializeToString()
    with pytest.raises(InputError, match=text):
        keep_outputs(model, names)
    assert model.SerializeToString() == before
