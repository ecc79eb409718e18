import importlib.util

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.onnx_file import load_onnx
from export.early_casts import cast_before_moves
from export.fp16_check import run_model
from export.lint.report import lint_file
from export.to_trt import PlanSettings, build_plans

FRAME = (1, 8, 12, 3)
RNG = np.random.default_rng(0)
FRAMES = {name: RNG.integers(0, 256, FRAME).astype(np.uint8) for name in ("before", "now")}


def make_network(path, *moves, outputs=("y",), kind=TensorProto.FLOAT):
    """Writes two frames of bytes → moves, of which the last gives 'moved' → Cast → Conv."""
    weights = {
        "w": RNG.normal(0, 0.01, (4, 6, 3, 3)).astype(np.float32),
        "first": np.array([-1]),
        "last": np.array([-100]),
        "channels": np.array([3]),
        "back": np.array([-1]),
    }
    nodes = [
        *moves,
        helper.make_node("Cast", ["moved"], ["float"], "cast", to=kind),
        helper.make_node("Cast", ["float"], ["x"], "widen", to=TensorProto.FLOAT),
        helper.make_node("Conv", ["x", "w"], ["y"], "conv"),
    ]
    graph = helper.make_graph(
        nodes,
        "bytes",
        [helper.make_tensor_value_info(name, TensorProto.UINT8, FRAME) for name in FRAMES],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


FLIP = helper.make_node("Slice", ["both", "first", "last", "channels", "back"], ["flip"], "flip")
JOINED = (
    helper.make_node("Concat", ["before", "now"], ["both"], "join", axis=3),
    FLIP,
    helper.make_node("Transpose", ["flip"], ["moved"], "move", perm=[0, 3, 1, 2]),
)


def cast_bytes(model):
    """Returns the tensors of bytes that a Cast reads."""
    made = {name: node.op_type for node in model.graph.node for name in node.output}
    casts = [node.input[0] for node in model.graph.node if node.op_type == "Cast"]
    return {name for name in casts if made.get(name) is None}


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_pictures_of_bytes_are_cast_first_and_moved_then(kind, tmp_path):
    model = load_onnx(make_network(tmp_path / "a.onnx", *JOINED, kind=kind))
    early = cast_before_moves(model)
    onnx.checker.check_model(early, full_check=True)
    assert cast_bytes(model) == set()
    assert cast_bytes(early) == set(FRAMES)
    (wanted,), (got,) = run_model(model, [FRAMES]), run_model(early, [FRAMES])
    np.testing.assert_array_equal(got["y"], wanted["y"])


def test_bytes_that_others_read_stay_bytes(tmp_path):
    path = make_network(tmp_path / "a.onnx", *JOINED, outputs=("y", "moved"))
    model = load_onnx(path)
    assert cast_before_moves(model) is model
    assert not lint_file(path).is_buildable


@pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="tensorrt_rtx is not installed"
)
@pytest.mark.parametrize("fp16", [True, False])
def test_a_network_that_moves_bytes_builds(fp16, tmp_path):
    path = make_network(tmp_path / "a.onnx", *JOINED)
    assert lint_file(path).is_buildable
    (result,) = build_plans(path, settings=PlanSettings(fp16=fp16, flavour="tensorrt-rtx"))
    assert result.path.stat().st_size
