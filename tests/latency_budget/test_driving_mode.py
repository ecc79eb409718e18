import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import InputError
from artifacts.onnx_metadata import HEADS_KEY
from engines.runtimes import open_session
from latency_budget.budget import Budget
from latency_budget.driving_mode import cut_to_heads

HEADS = {"detection": {"outputs": ["boxes"]}, "depth": {"outputs": ["depth"]}}
BUDGET = {
    "heads": {
        "detection": {"metric": "mAP50", "max_drop": 0.01},
        "depth": {"metric": "abs_rel", "max_drop": 0.01},
    },
    "modes": {"highway": {"heads": ["detection"]}},
}


@pytest.fixture
def model(tmp_path):
    tensor = helper.make_tensor_value_info
    weights = numpy_helper.from_array(np.full((4, 3, 1, 1), 0.5, np.float32), "w")
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["trunk"], name="trunk"),
            helper.make_node("Conv", ["trunk", "w"], ["boxes"], name="boxes"),
            helper.make_node("Exp", ["trunk"], ["depth"], name="depth"),
        ],
        "two_heads",
        [tensor("x", TensorProto.FLOAT, [1, 3, 4, 4])],
        [
            tensor("boxes", TensorProto.FLOAT, [1, 4, 4, 4]),
            tensor("depth", TensorProto.FLOAT, [1, 3, 4, 4]),
        ],
        [weights],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(made, {HEADS_KEY: json.dumps(HEADS)})
    path = tmp_path / "two.onnx"
    onnx.save(made, path)
    return path


def test_a_mode_keeps_its_heads_results_and_drops_the_others_nodes(model, tmp_path):
    cut = cut_to_heads(model, ("detection",), tmp_path / "cut.onnx")
    nodes = {node.name for node in onnx.load(cut).graph.node}
    assert nodes == {"trunk", "boxes"}
    x = {"x": np.random.default_rng(0).random((1, 3, 4, 4), np.float32)}
    with open_session(model, "onnxruntime") as whole, open_session(cut, "onnxruntime") as part:
        found = part.run(x)
        assert set(found) == {"boxes"}
        assert (found["boxes"] == whole.run(x)["boxes"]).all()


def test_heads_that_are_not_there_are_refused(model, tmp_path):
    with pytest.raises(InputError, match="has no head 'lanes'"):
        cut_to_heads(model, ("lanes",), tmp_path / "cut.onnx")
    with pytest.raises(InputError, match="heads cannot be switched off"):
        cut_to_heads(tmp_path / "m.plan", ("detection",), tmp_path / "cut.onnx")


def test_a_mode_drops_the_contracts_of_heads_that_are_off():
    budget = Budget.from_dict(BUDGET)
    assert set(budget.for_mode("highway").heads) == {"detection"}
    with pytest.raises(InputError, match="did you mean 'highway'"):
        budget.for_mode("higway")


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ({"heads": []}, "at least one head"),
        ({"heads": "detection"}, "a list of names"),
        ({"head": ["a"]}, "unknown key 'modes.m.head'"),
        (3, "a table"),
    ],
)
def test_wrong_modes_are_refused(mode, message):
    with pytest.raises(InputError, match=message):
        Budget.from_dict({"modes": {"m": mode}})


@pytest.mark.parametrize(
    ("tier", "message"),
    [
        ({"restarts": 0}, "tiers.t.restarts = 0"),
        ({"frames": 2, "restarts": 3}, "no more than frames"),
        ({"frames": 5, "min_frames": 9}, "no more than frames"),
        ({"stages_imply_frame": "yes"}, "true or false"),
        ({"attempts": 1.5}, "a whole number"),
        ({"frames": 10**20}, "a whole number of at most 10000000"),
        ({"p999_confidence": 99}, "write 0.99"),
    ],
)
def test_wrong_tiers_are_refused(tier, message):
    with pytest.raises(InputError, match=message):
        Budget.from_dict({"tiers": {"t": tier}})
