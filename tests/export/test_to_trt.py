import importlib.util

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import InputError, MissingExtraError, UnavailableError
from artifacts.input_spec import InputSpec
from artifacts.onnx_file import save_onnx
from artifacts.onnx_metadata import INPUT_SPEC_KEY
from artifacts.plan_manifest import read_manifest, read_verified_plan
from export import to_trt
from export.integer_share import require_integer_layers
from export.to_trt import PlanSettings, build_plans, choose_flavour, ready_path
from export.trt_build import build_plan

needs_rtx = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="tensorrt_rtx is not installed"
)


@pytest.fixture
def int8_path(int8_model, tmp_path):
    metadata = {INPUT_SPEC_KEY: InputSpec(color="bgr").to_json()}
    return save_onnx(int8_model, tmp_path / "model.int8.onnx", metadata=metadata)


@pytest.fixture
def float_path(float_model, tmp_path):
    return save_onnx(float_model, tmp_path / "model.onnx", metadata={})


def write_unsupported(path):
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "first"),
        helper.make_node("Det", ["r"], ["y"], "my_det"),
    ]
    values = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("x", [1, 3, 4, 4]), ("y", [1, 3]))
    ]
    graph = helper.make_graph(nodes, "det", *values)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path
    )
    return path


@needs_rtx
def test_one_plan_for_several_gpus_is_built_without_any(int8_path, sample):
    steps = []
    settings = PlanSettings(int8=True, sm=(86, 89, 86), flavour="tensorrt-rtx")
    (result,) = build_plans(
        int8_path, settings=settings, samples=[sample], progress=lambda *step: steps.append(step)
    )
    assert result.path == int8_path.with_suffix(".plan")
    assert len(read_verified_plan(result.path)) == result.manifest.plan_bytes > 1000
    manifest = read_manifest(result.path)
    assert manifest == result.manifest
    assert manifest.compute_capabilities == (86, 89)
    assert manifest.flavour == "tensorrt-rtx"
    assert manifest.settings["nodes"]["int8"] == 3
    assert manifest.settings["checked_on"] == "samples"
    assert InputSpec.from_json(manifest.metadata[INPUT_SPEC_KEY]).color == "bgr"
    assert result.onnx_path == ready_path(result.path)
    assert steps[0][1] == 0
    assert steps[-1][1:] == (3, 3)


@needs_rtx
def test_float_networks_build_in_fp16_and_in_fp32(float_path, tmp_path):
    for fp16 in (True, False):
        settings = PlanSettings(fp16=fp16, flavour="tensorrt-rtx", sm=(89,))
        (result,) = build_plans(float_path, tmp_path / f"{fp16}.plan", settings=settings)
        assert (result.precision is not None) == fp16
        kinds = {tensor.data_type for tensor in onnx.load(result.onnx_path).graph.initializer}
        assert (TensorProto.FLOAT16 in kinds) == fp16


@needs_rtx
def test_a_graph_that_tensorrt_refuses_names_the_node(tmp_path):
    path = write_unsupported(tmp_path / "det.onnx")
    with pytest.raises(
        InputError, match=r"TensorRT-RTX cannot parse .* node 'my_det' \(Det\)"
    ) as e:
        build_plans(path, settings=PlanSettings(flavour="tensorrt-rtx"))
    assert "\n" not in str(e.value)
    assert not path.with_suffix(".plan").exists()


@needs_rtx
def test_a_gpu_that_tensorrt_rtx_does_not_know_is_refused(float_path):
    with pytest.raises(InputError, match="does not build for 90; expected --sm among 75, 80"):
        build_plans(float_path, settings=PlanSettings(sm=(90,), flavour="tensorrt-rtx"))


def test_int8_insists_on_a_quantized_network(float_path):
    with pytest.raises(InputError, match=r"run: compress quantize model\.onnx"):
        build_plans(float_path, settings=PlanSettings(int8=True))


def test_int8_is_not_said_of_pairs_at_the_edges(float_model, tmp_path):
    """The layers between them compute in float."""
    model = onnx.ModelProto()
    model.CopyFrom(float_model)
    constants = {"scale": np.float32(0.02), "zero": np.int8(0)}
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    for node in model.graph.node:
        node.input[:] = ["dequantized" if name == "image" else name for name in node.input]
    pair = [
        helper.make_node("QuantizeLinear", ["image", *constants], ["quantized"]),
        helper.make_node("DequantizeLinear", ["quantized", *constants], ["dequantized"]),
    ]
    nodes = [*pair, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, tmp_path / "edges.onnx")
    with pytest.raises(InputError, match="the weight of none of its 3 layers"):
        build_plans(tmp_path / "edges.onnx", settings=PlanSettings(int8=True))


def test_int8_of_few_layers_is_warned_of(int8_model, caplog):
    require_integer_layers(int8_model, "model")
    assert not caplog.records
    nodes = [helper.make_node("Conv", ["image", "w"], [f"y{i}"]) for i in range(30)]
    mostly = onnx.ModelProto()
    mostly.CopyFrom(int8_model)
    mostly.graph.node.extend(nodes)
    require_integer_layers(mostly, "model")
    assert "only 3 of 33 layers" in caplog.text


def test_without_tensorrt_the_ready_network_is_kept_and_named(int8_path, monkeypatch):
    monkeypatch.setattr(to_trt.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as caught:
        build_plans(int8_path, settings=PlanSettings(int8=True))
    text = str(caught.value)
    kept = ready_path(int8_path.with_suffix(".plan"))
    assert "framefit[tensorrt-rtx]" in text
    assert "framefit[tensorrt]" in text
    assert str(kept) in text
    operators = {node.op_type for node in onnx.load(kept).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "Cast"} <= operators
    assert not int8_path.with_suffix(".plan").exists()


def test_auto_takes_tensorrt_only_where_it_has_a_gpu(monkeypatch):
    monkeypatch.setattr(to_trt.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(to_trt, "_has_gpu", lambda: False)
    assert choose_flavour("auto") == "tensorrt-rtx"
    monkeypatch.setattr(to_trt, "_has_gpu", lambda: True)
    assert choose_flavour("auto") == "tensorrt"
    assert choose_flavour("tensorrt-rtx") == "tensorrt-rtx"
    monkeypatch.setattr(to_trt.importlib.util, "find_spec", lambda name: name == "tensorrt" or None)
    monkeypatch.setattr(to_trt, "_has_gpu", lambda: False)
    assert choose_flavour("auto") == "tensorrt"
    with pytest.raises(MissingExtraError, match="tensorrt_rtx"):
        choose_flavour("tensorrt-rtx")


CHILDREN = {
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)": "crashed .*signal 11",
    "import time; time.sleep(60)": "did not finish .* in 1 s",
    "raise RuntimeError('first\\nno driver here')": "failed on .*no driver here",
    "pass": "failed on .*exit status 0",
}


@pytest.mark.parametrize("code", CHILDREN)
def test_a_child_that_dies_is_one_clear_line(code, tmp_path, float_path):
    script = tmp_path / "child.py"
    script.write_text(code)
    with pytest.raises(UnavailableError, match=CHILDREN[code]) as caught:
        build_plan(
            float_path,
            flavour="tensorrt-rtx",
            compute_capabilities=(86,),
            timing_cache=None,
            timeout_s=1.0 if "sleep" in code else 60.0,
            script=script,
        )
    assert "\n" not in str(caught.value)


CACHE_CHILD = """
import json, os, sys
from pathlib import Path
request = json.loads(Path(sys.argv[1]).read_text())
Path(request["plan"]).write_bytes(b"engine")
Path(request["new_timing_cache"]).write_bytes(b"new timings")
is_ignored = Path(request["timing_cache"]).read_bytes() != b"good"
answer = {"version": "1", "compute_capabilities": [86], "is_cache_ignored": is_ignored}
Path(sys.argv[2]).write_text(json.dumps(answer))
"""


@pytest.mark.parametrize(("content", "is_warned"), [(b"good", False), (b"torn", True)])
def test_an_ignored_timing_cache_is_made_anew_with_a_warning(
    tmp_path, float_path, caplog, content, is_warned
):
    script, cache = tmp_path / "child.py", tmp_path / "timing.cache"
    script.write_text(CACHE_CHILD)
    cache.write_bytes(content)
    build_plan(
        float_path,
        flavour="tensorrt",
        compute_capabilities=(86,),
        timing_cache=cache,
        timeout_s=60.0,
        script=script,
    )
    assert ("ignored and made anew" in caplog.text) == is_warned
    assert cache.read_bytes() == b"new timings"
    assert sorted(path.name for path in tmp_path.glob("*timing*")) == ["timing.cache"]


def test_wrong_settings_are_refused(float_path, tmp_path):
    for wrong in ({"flavour": "onnx"}, {"timeout_s": 0.0}, {"sm": (8,)}):
        with pytest.raises(InputError):
            PlanSettings(**wrong)
    with pytest.raises(InputError, match=r"ends in \.plan"):
        build_plans(float_path, tmp_path / "model.engine")
    settings = PlanSettings(flavour="tensorrt-rtx", timing_cache=tmp_path / "cache")
    with pytest.raises(InputError, match="does not have"):
        to_trt._capabilities(settings, "tensorrt-rtx")


@needs_rtx
@pytest.mark.parametrize("operator", ["ScatterND", "ScatterElements"])
def test_a_scattered_sum_is_named_also_where_tensorrt_does_not_say_its_node(tmp_path, operator):
    """Lift-splat with computed cells adds features up by index, which TensorRT does not."""
    rows = [6, 4] if operator == "ScatterElements" else [6, 1]
    constants = {"grid": np.zeros((3, 4), np.float32)}
    nodes = [
        helper.make_node("Relu", ["x"], ["features"], "relu"),
        helper.make_node(operator, ["grid", "rows", "features"], ["y"], "splat", reduction="add"),
    ]
    graph = helper.make_graph(
        nodes,
        "splat",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 4]),
            helper.make_tensor_value_info("rows", TensorProto.INT64, rows),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "splat.onnx")
    with pytest.raises(
        InputError,
        match=rf"at node 'splat' \({operator}\): .* export lint .* --target tensorrt-rtx says",
    ):
        build_plans(tmp_path / "splat.onnx", settings=PlanSettings(flavour="tensorrt-rtx"))


def test_gpus_without_fp8_are_named_with_those_that_have_it(tmp_path):
    pytest.importorskip("tensorrt_rtx")
    value = helper.make_tensor_value_info
    node = helper.make_node
    weights = {
        "s": np.float32(0.1),
        "w": np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32),
    }
    zero = helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, (), [0.0])
    graph = helper.make_graph(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["xq"], "xq"),
            node("DequantizeLinear", ["xq", "s", "z"], ["xd"], "xd"),
            node("QuantizeLinear", ["w", "s", "z"], ["wq"], "wq"),
            node("DequantizeLinear", ["wq", "s", "z"], ["wd"], "wd"),
            node("MatMul", ["xd", "wd"], ["y"], "product"),
        ],
        "fp8",
        [value("x", TensorProto.FLOAT, (16, 16))],
        [value("y", TensorProto.FLOAT, (16, 16))],
        [zero, *(numpy_helper.from_array(np.asarray(item), key) for key, item in weights.items())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    path = tmp_path / "fp8.onnx"
    onnx.save(model, path)
    settings = PlanSettings(flavour="tensorrt-rtx")
    with pytest.raises(InputError, match=r"compute capability 86, which has no FP8.*--sm.*89"):
        build_plans(path, settings=settings)
    build_plans(path, settings=PlanSettings(flavour="tensorrt-rtx", sm=(89,)))
