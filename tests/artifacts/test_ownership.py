"""Trunk and heads by reachability."""

import json

import onnx
import pytest
from onnx import TensorProto, helper

from artifacts.errors import InputError
from artifacts.onnx_metadata import HEADS_KEY
from artifacts.ownership import TRUNK, node_owners, read_heads


def two_heads(metadata: dict[str, object] | None = None) -> onnx.ModelProto:
    """x -> a -> (b -> left, c -> right -> d -> more); e reaches no output."""
    nodes = [
        helper.make_node("Relu", ["x"], ["ta"], "a"),
        helper.make_node("Relu", ["ta"], ["left"], "b"),
        helper.make_node("Relu", ["ta"], ["right"], "c"),
        helper.make_node("Relu", ["right"], ["more"], "d"),
        helper.make_node("Relu", ["ta"], ["unused"], "e"),
    ]
    tensors = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])
        for name in ("x", "left", "right", "more")
    }
    outputs = [tensors["left"], tensors["right"], tensors["more"]]
    model = helper.make_model(helper.make_graph(nodes, "g", [tensors["x"]], outputs))
    if metadata is not None:
        helper.set_model_props(model, {HEADS_KEY: json.dumps(metadata)})
    return model


def test_each_output_is_a_head_where_nothing_says_otherwise() -> None:
    assert read_heads(two_heads()) == {"left": ("left",), "right": ("right",), "more": ("more",)}
    owners = node_owners(two_heads())
    assert owners == {"a": TRUNK, "b": "left", "c": TRUNK, "d": "more"}


def test_metadata_groups_outputs_and_the_rest_stay_heads_of_their_own() -> None:
    model = two_heads({"pair": {"outputs": ["right", "more"]}})
    assert read_heads(model) == {"pair": ("right", "more"), "left": ("left",)}
    assert node_owners(model) == {"a": TRUNK, "b": "left", "c": "pair", "d": "pair"}


def test_a_head_with_an_unknown_output_is_refused() -> None:
    with pytest.raises(InputError, match="names output 'lef'"):
        node_owners(two_heads(), {"detection": ("lef",)})
