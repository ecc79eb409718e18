"""Networks that are trained end at the tensors about which they decide."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from artifacts.decision_ends import end_before_decisions

SHAPE = [1, 4, 6, 6]


def make(prefix: str = "", *, decides: bool = True, shares: bool = False) -> onnx.ModelProto:
    """Returns a Conv, an ArgMax of its result, and a second output beside them."""
    scores = f"{prefix}scores"
    nodes = [helper.make_node("Conv", ["x", "w"], [scores], "layer")]
    outputs = [("depth", TensorProto.FLOAT)]
    if decides:
        nodes += [
            helper.make_node("ArgMax", [scores], [f"{prefix}best"], axis=1),
            helper.make_node("Cast", [f"{prefix}best"], ["labels"], to=TensorProto.UINT8),
        ]
        outputs.append(("labels", TensorProto.UINT8))
    if shares:
        nodes.append(helper.make_node("ArgMin", [scores], ["worst"], axis=1))
        outputs.append(("worst", TensorProto.INT64))
    nodes.append(helper.make_node("Neg", [scores], ["depth"]))
    weight = np.random.default_rng(0).normal(size=(4, 4, 1, 1)).astype(np.float32)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, SHAPE)],
        [value(name, kind, None) for name, kind in outputs],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def names(model: onnx.ModelProto) -> list[str]:
    return [item.name for item in model.graph.output]


def test_both_end_at_the_scores_by_the_name_of_what_is_decided() -> None:
    pair = make(), make("quantized_")
    ended = end_before_decisions(*pair)
    x = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    for whole, end in zip(pair, ended, strict=True):
        onnx.checker.check_model(end, full_check=True)
        assert names(end) == ["depth", "labels"]
        assert "labels" in names(whole)
        wanted, got = (
            dict(zip(names(model), ReferenceEvaluator(model).run(None, {"x": x}), strict=True))
            for model in (whole, end)
        )
        np.testing.assert_array_equal(got["labels"], -wanted["depth"])
        np.testing.assert_array_equal(got["depth"], wanted["depth"])


def test_scores_of_two_decisions_keep_the_name_of_the_first_form() -> None:
    ended = end_before_decisions(make(shares=True), make("quantized_", shares=True))
    assert [names(end) for end in ended] == [["depth", "scores"]] * 2


def without_types() -> onnx.ModelProto:
    model = make()
    del model.graph.value_info[:]
    return model


@pytest.mark.parametrize(
    "pair",
    [
        (without_types(), make()),
        (make(decides=False), make("quantized_", decides=False)),
        (make(), make("quantized_", decides=False)),
    ],
    ids=["types are unknown", "nothing decides", "only one decides"],
)
def test_others_stay_as_they_are(pair: tuple[onnx.ModelProto, onnx.ModelProto]) -> None:
    assert end_before_decisions(*pair) == pair
