"""Operators of somebody's own behind a network's last layer are cut off, and put back later."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import InputError
from artifacts.onnx_file import load_before_plugins, load_onnx, save_onnx
from artifacts.plugin_tail import join_plugins
from compress import quantize
from export.lint import lint_file
from export.to_trt import ready_path
from framefit.cli import compress_main, main

SUPPRESSION = {"plugin_version": "1", "max_output_boxes": 20, "iou_threshold": 0.6}
SHAPES = {"kept": [1, 20, 4], "count": [1, 1], "mask": [1, 2, 8, 8]}


@pytest.fixture(params=["TRT", ""])
def detector(request, tmp_path):
    """Writes a detector whose boxes a plugin suppresses, beside a mask; returns its path."""
    rng = np.random.default_rng(0)
    plugin = helper.make_node(
        "EfficientNMS_TRT",
        ["boxes", "scores", "anchors"],
        ["found", "kept"],
        "nms",
        domain=request.param,
        **SUPPRESSION,
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "trunk", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w_boxes"], ["boxes"], "boxes"),
        helper.make_node("Conv", ["b", "w_scores"], ["logits"], "logits"),
        helper.make_node("Sigmoid", ["logits"], ["scores"], "scores"),
        plugin,
        helper.make_node("Cast", ["found"], ["count"], "as_float", to=TensorProto.FLOAT),
        helper.make_node("Conv", ["b", "w_mask"], ["mask"], "mask"),
    ]
    shapes = {"w": (8, 3, 3, 3), "w_boxes": (4, 8, 1, 1), "w_scores": (5, 8, 1, 1)}
    shapes |= {"w_mask": (2, 8, 1, 1), "anchors": (1, 4)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in SHAPES.items()
    ]
    graph = helper.make_graph(nodes, "detector", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("TRT", 1)]
    path = tmp_path / "detector.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    np.savez(tmp_path / "samples.npz", x=rng.random((4, 3, 8, 8), np.float32))
    return path


def test_what_is_cut_off_comes_back_as_it_was(detector):
    model, tail = load_before_plugins(detector)
    assert [item.name for item in model.graph.output] == ["mask", "boxes", "scores"]
    assert "'nms' (EfficientNMS_TRT)" in tail.describe()
    joined = join_plugins(model, tail)
    assert [item.name for item in joined.graph.output] == list(SHAPES)
    (plugin,) = (node for node in joined.graph.node if node.op_type == "EfficientNMS_TRT")
    found = {item.name: helper.get_attribute_value(item) for item in plugin.attribute}
    assert found["max_output_boxes"] == SUPPRESSION["max_output_boxes"]
    stored = {item.name: numpy_helper.to_array(item) for item in joined.graph.initializer}
    assert stored[plugin.input[2]].shape == (1, 4)
    onnx.checker.check_model(joined)


def test_a_network_without_plugins_is_whole(detector, tmp_path):
    model, tail = load_before_plugins(detector)
    assert tail is not None
    plain = save_onnx(model, tmp_path / "plain.onnx", metadata={})
    assert load_before_plugins(plain)[1] is None


def test_a_plugin_that_a_layer_needs_is_refused(detector):
    model = onnx.load(detector)
    model.graph.node[-1].input[0] = "late"
    resize = helper.make_node("AcmeUp", ["b"], ["late"], "up", domain="acme")
    model.graph.node.insert(2, resize)
    onnx.save(model, detector)
    with pytest.raises(InputError, match="AcmeUp"):
        load_before_plugins(detector)


def test_commands_that_compute_everything_refuse_it(detector):
    with pytest.raises(InputError, match=r"EfficientNMS_TRT.*behind the last layer"):
        load_onnx(detector)


def test_it_is_quantized_compared_and_checked(detector, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["quantize", detector.name, "--data", "samples.npz", "--json", "made.json"]
    assert compress_main(arguments) == 0
    assert "all is measured at what it reads: boxes, scores" in capsys.readouterr().err
    made = json.loads((tmp_path / "made.json").read_text())
    assert set(made["outputs"]) == {"mask", "boxes", "scores"}
    written = onnx.load(tmp_path / "detector.int8.onnx")
    assert [item.name for item in written.graph.output] == list(SHAPES)
    kinds = [node.op_type for node in written.graph.node]
    assert kinds.count("EfficientNMS_TRT") == 1
    assert "QuantizeLinear" in kinds
    compare = ["compare", detector.name, "detector.int8.onnx", "--data", "samples.npz"]
    assert compress_main([*compare, "--json", "compared.json"]) == 0
    compared = json.loads((tmp_path / "compared.json").read_text())
    assert min(item["sqnr_db"] for item in compared["outputs"].values()) > 25
    data = tmp_path / "samples.npz"
    assert "EfficientNMS_TRT" in [
        node.op_type for node in quantize(detector, data).model.graph.node
    ]
    assert lint_file(detector, target="tensorrt-11").is_buildable
    assert not lint_file(detector, target="tensorrt-rtx").is_buildable


def test_the_network_to_build_elsewhere_has_the_plugin(detector, tmp_path, monkeypatch):
    pytest.importorskip("tensorrt_rtx")
    monkeypatch.chdir(tmp_path)
    build = ["export", "trt", detector.name, "--flavour", "tensorrt-rtx"]
    assert main([*build, "--out", "detector.plan"]) == 2
    typed = onnx.load(ready_path(tmp_path / "detector.plan"))
    assert "EfficientNMS_TRT" in [node.op_type for node in typed.graph.node]
    assert "Cast" in [node.op_type for node in typed.graph.node]
