"""`framefit export lint` as it is typed."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from artifacts.errors import InputError
from compress.quantize.placement import PLACEMENTS
from export.lint import lint_file, lint_model
from framefit.cli import main


@pytest.fixture
def save(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def save(model, name="model.onnx"):
        onnx.save(model, tmp_path / name)
        return name

    return save


def test_a_good_network_passes(save, draw, capsys):
    d = draw()
    path = save(d.model(d.op("Relu", d.conv("x", "conv"))))
    assert main(["export", "lint", path, "--json", "report.json"]) == 0
    out = capsys.readouterr().out
    assert "builds on tensorrt-11; 0 error, 0 wrong, 0 warning" in out
    report = json.loads(Path("report.json").read_text())
    assert report["is_buildable"]
    assert report["model"] == path
    assert all(item["fix"] for item in report["findings"])


def test_an_asymmetric_network_fails_with_node_reason_and_fix(save, draw, capsys):
    d = draw()
    weight = d.weight((32, 32, 3, 3), below=65)
    source = d.pair("x", zero_point=np.int8(5))
    path = save(d.model(d.conv(source, "conv", pair=False, weight=weight)))
    assert main(["export", "lint", path]) == 1
    out = capsys.readouterr().out
    assert "error: Q" in out
    assert "a zero point of 5" in out
    assert "fix: quantize with compress quantize --target tensorrt" in out
    assert "does not build on tensorrt-11" in out
    assert main(["export", "lint", path, "--target", "openvino"]) == 0


def test_what_would_compute_something_else_fails_too(save, draw, capsys):
    d = draw()
    path = save(d.model(d.conv(d.pair("x", zero_point=np.uint8(0)), "conv", pair=False)))
    assert main(["export", "lint", path]) == 1
    assert "wrong: Q" in capsys.readouterr().out


def test_dynamic_shapes_are_found_and_can_be_given(save, draw, capsys):
    d = draw(x=("N", 32, "H", 16))
    path = save(d.model(d.op("Relu", "x")))
    assert main(["export", "lint", path]) == 1
    out = capsys.readouterr().out
    assert "--input-shape x=1,32,360,16" in out
    assert "not checked" in out
    assert main(["export", "lint", path, "--input-shape", "1,32,16,16"]) == 0


def test_each_target_of_quantize_is_one_of_lint(save, draw, capsys):
    d = draw(x=(1, 8, 16, 16))
    path = save(d.model(d.op("Relu", "x")))
    for target in PLACEMENTS:
        assert main(["export", "lint", path, "--target", target]) == 0
        assert f" {target}" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["openvino", "onnxruntime"])
def test_other_runtimes_take_dynamic_shapes(target, save, draw, capsys):
    d = draw(x=("N", "H", "W", 3))
    path = save(d.model(d.op("Relu", "x")))
    assert main(["export", "lint", path, "--target", target]) == 0
    out = capsys.readouterr().out
    assert "--input-shape x=1,360,640,3" in out
    assert "plan" not in out
    assert "not checked" in out


def test_a_free_batch_is_checked_as_one_sample(save, draw, capsys):
    d = draw(x=("N", 32, 16, 16))
    path = save(d.model(d.op("Relu", "x")))
    assert main(["export", "lint", path]) == 0
    assert "not checked" not in capsys.readouterr().out


def test_few_infos_are_shown_unless_asked_for(save, draw, capsys):
    d = draw(**{f"x{i}": (1, 32, 8, 8) for i in range(8)})
    path = save(d.model(*(d.conv(name, f"conv_{name}") for name in d.inputs)))
    assert main(["export", "lint", path]) == 0
    assert "more infos; --verbose shows them" in capsys.readouterr().out
    assert main(["export", "lint", path, "--verbose"]) == 0
    assert "more infos" not in capsys.readouterr().out


def test_alike_findings_are_shown_once_and_kept_apart_in_json(save, draw, capsys):
    d = draw()
    x = "x"
    for number in range(5):
        x = d.op("Mul", x, d.floats(32, 1, 1), name=f"scale{number}")
    path = save(d.model(x))
    command = ["export", "lint", path, "--target", "openvino"]
    assert main([*command, "--json", "report.json"]) == 0
    out = capsys.readouterr().out
    assert out.count("why:") == 1
    assert "warning: scale0, scale1, scale2 and 2 more: a constant per channel" in out
    assert len(json.loads(Path("report.json").read_text())["findings"]) == 5
    assert main([*command, "--verbose"]) == 0
    assert capsys.readouterr().out.count("why:") == 5


def test_bad_input_is_one_line(save, draw, tmp_path, capsys):
    (tmp_path / "text.onnx").write_text("hello")
    assert main(["export", "lint", "text.onnx"]) == 2
    (tmp_path / "report.json").write_text('{"schema": 1}')
    assert main(["export", "lint", "report.json"]) == 2
    assert main(["export", "lint", "missing.onnx"]) == 2
    path = save(draw().model("x"))
    assert main(["export", "lint", path, "--target", "tensorflow"]) == 2
    assert capsys.readouterr().err.count("\n") == 4
    with pytest.raises(InputError, match="tensorrt-10"):
        lint_model(onnx.load(path), target="tensorrt-9")


def test_guards_for_openvino_are_taken_out_as_export_trt_does(save, draw):
    d = draw()
    guarded = d.op("LeakyRelu", "x", name="x_openvino_guard", alpha=1.0)
    path = save(d.model(d.conv(guarded, "conv")))
    assert lint_file(path, target="tensorrt-rtx").nodes < lint_file(path, target="openvino").nodes


def test_a_subgraph_is_looked_into(draw):
    d = draw(x=(1, 4, 4))
    branches = []
    for kind, name in (("Det", "yes"), ("ReduceMax", "no")):
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        node = helper.make_node(kind, ["x"], [name], f"in_{name}")
        branches.append(helper.make_graph([node], name, [], [value]))
    total = d.op("ReduceSum", "x", keepdims=0)
    condition = d.op("Greater", total, d.constant(np.float32(0)))
    d.op("If", condition, name="if", then_branch=branches[0], else_branch=branches[1])
    places = [item.place for item in lint_model(d.model("if")).findings if item.severity == "error"]
    assert "in_yes" in places


def test_zero_points_are_one_finding_whatever_they_are(save, draw, capsys):
    d = draw()
    first = d.conv(d.pair("x", zero_point=np.int8(5)), "conv", pair=False)
    second = d.conv(d.pair(first, zero_point=np.int8(7)), "conv_2", pair=False)
    assert main(["export", "lint", save(d.model(second))]) == 1
    out = capsys.readouterr().out
    assert out.count("error:") == 1
    assert "a zero point of ..." in out


@pytest.mark.parametrize(
    ("stated", "is_said"),
    [
        ('{"quantize": {"target": "openvino"}}', True),
        ('{"quantize": {"target": "tensorrt"}}', False),
        ('{"quantize": {"target": "somebody\'s"}}', False),
        ("[]", False),
        ("{", False),
    ],
)
def test_a_file_for_another_runtime_names_it(save, draw, capsys, stated, is_said):
    d = draw()
    model = d.model(d.conv(d.pair("x", zero_point=np.int8(5)), "conv", pair=False))
    helper.set_model_props(model, {"framefit.settings": stated})
    assert main(["export", "lint", save(model)]) == 1
    assert ("quantized for openvino: --target openvino" in capsys.readouterr().out) is is_said
