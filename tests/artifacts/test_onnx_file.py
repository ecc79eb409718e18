"""`load_onnx` returns complete, safe, runnable models and refuses every other file in a line."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from artifacts import opset, opset_child
from artifacts.errors import InputError, UnsafeFileError
from artifacts.onnx_file import find_free_batches, load_onnx, save_onnx
from artifacts.onnx_inputs import input_tensors, parse_input_shapes
from artifacts.onnx_metadata import read_metadata

f32 = np.float32
REAL = Path(__file__).parents[2] / "../shared/real"


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"x": x})[0]


def test_good_model_is_returned_with_shapes_and_same_outputs(model_file: Path) -> None:
    model = load_onnx(model_file)
    assert input_tensors(model)["x"].shape == (1, 3, 8, 8)
    assert {value.name for value in model.graph.value_info} == {"c"}
    x = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(f32)
    np.testing.assert_array_equal(run(model, x), run(onnx.load(model_file), x))


def test_save_keeps_and_adds_metadata(tmp_path: Path, model_file: Path) -> None:
    first = save_onnx(load_onnx(model_file), tmp_path / "a.onnx", metadata={"framefit.a": "1"})
    second = save_onnx(load_onnx(first), tmp_path / "b.onnx", metadata={"framefit.b": "2"})
    assert read_metadata(load_onnx(second)) == {"framefit.a": "1", "framefit.b": "2"}


def test_saving_twice_gives_the_same_bytes(tmp_path: Path, model_file: Path) -> None:
    paths = [
        save_onnx(load_onnx(model_file), tmp_path / name, metadata={"b": "1", "a": "2"})
        for name in ("1.onnx", "2.onnx")
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()


class Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello, I am no model\n" * 20, "is a text file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"PK\x03\x04" + b"\0" * 100, "zip archive"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 100, "HDF5"),
        (b"\x1c\0\0\0TFL3" + b"\0" * 100, "TensorFlow Lite"),
        (bytes(range(256)), "not a complete ONNX model"),
        (b"\x08\x08", "not a complete ONNX model"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_onnx(path)


def test_missing_folder_and_pipe_are_refused(tmp_path: Path) -> None:
    import os

    with pytest.raises(InputError, match="No such file"):
        load_onnx(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="is a folder"):
        load_onnx(tmp_path)
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(InputError, match="not a regular file"):
        load_onnx(tmp_path / "pipe.onnx")


def test_pickle_is_refused_and_does_not_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    path = tmp_path / "model.onnx"
    path.write_bytes(pickle.dumps(Canary(canary)))
    with pytest.raises(UnsafeFileError, match="pickle"):
        load_onnx(path)
    assert not canary.exists()
    pickle.loads(path.read_bytes())
    assert canary.exists(), "the canary must be able to sing"


def test_truncated_file_is_refused_at_every_length(tmp_path: Path, model_file: Path) -> None:
    content = model_file.read_bytes()
    cut = tmp_path / "cut.onnx"
    for length in range(1, len(content), max(1, len(content) // 64)):
        cut.write_bytes(content[:length])
        with pytest.raises(InputError):
            load_onnx(cut)


@pytest.mark.parametrize("kind", [0, 99])
def test_an_input_of_no_known_type_is_refused(tmp_path: Path, model_file: Path, kind: int) -> None:
    model = onnx.load(model_file)
    model.graph.input[0].type.tensor_type.elem_type = kind
    path = tmp_path / "untyped.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="type"):
        load_onnx(path)


def test_a_weight_of_no_known_type_is_refused(tmp_path: Path, model_file: Path) -> None:
    model = onnx.load(model_file)
    model.graph.initializer[0].data_type = 99
    path = tmp_path / "untyped.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="element type 99"):
        load_onnx(path)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(position=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_flipped_bit_is_refused_or_gives_a_model(
    tmp_path: Path, model_file: Path, position: int, bit: int
) -> None:
    content = bytearray(model_file.read_bytes())
    content[position % len(content)] ^= 1 << bit
    path = tmp_path / "flipped.onnx"
    path.write_bytes(content)
    try:
        load_onnx(path)
    except InputError as error:
        lines = str(error).splitlines()
    else:
        lines = [""]
    assert len(lines) == 1


def test_a_weight_whose_values_are_missing_is_refused(tmp_path: Path, make_model) -> None:
    model = make_model()
    model.graph.initializer[0].ClearField("raw_data")
    onnx.save(model, tmp_path / "m.onnx")
    name = model.graph.initializer[0].name
    with pytest.raises(InputError, match=f"values of tensor '{name}' .* cannot be read"):
        load_onnx(tmp_path / "m.onnx")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, make_model, value: float) -> None:
    weights = {"good": np.zeros(3, f32), "bad": np.array([1, value, 2], f32).reshape(1, 3, 1, 1)}
    nodes = [helper.make_node("Mul", ["x", "bad"], ["y"])]
    onnx.save(make_model(nodes, weights=weights), tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"tensor 'bad' .* 1 of 3 values"):
        load_onnx(tmp_path / "m.onnx")


def test_a_sequence_is_no_output(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["x", "x"], ["both"])],
        "sequence",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_sequence_value_info("both", onnx.TensorProto.FLOAT, None)],
    )
    path = tmp_path / "sequence.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    with pytest.raises(InputError, match="output 'both' is a sequence; expected a tensor"):
        load_onnx(path)


def test_infinite_limit_of_a_clip_is_no_weight(tmp_path: Path, make_model) -> None:
    weights = {"low": f32(0), "high": f32(np.inf)}
    nodes = [helper.make_node("Clip", ["x", "low", "high"], ["y"])]
    onnx.save(make_model(nodes, weights=weights), tmp_path / "m.onnx")
    assert load_onnx(tmp_path / "m.onnx").graph.node


NODE = helper.make_node
BROKEN_GRAPHS = {
    "undefined": ([NODE("Relu", ["z"], ["y"])], "reads 'z', which nothing defines"),
    "cycle": ([NODE("Add", ["x", "b"], ["a"]), NODE("Add", ["x", "a"], ["b"])], "a cycle"),
    "twice": ([NODE("Relu", ["x"], ["y"]), NODE("Abs", ["x"], ["y"])], "'y' more than once"),
    "no output": ([NODE("Relu", ["x"], ["q"])], "'y' .* computed by no node"),
    "unknown operator": ([NODE("Frobnicate", ["x"], ["y"])], "'Frobnicate'"),
    "unknown domain": ([NODE("Op", ["x"], ["y"], domain="my.ops")], "'my.ops::Op'"),
    "attribute": ([NODE("Relu", ["x"], ["y"], bogus=3)], "bogus"),
    "blocksize": ([NODE("DepthToSpace", ["x"], ["y"], blocksize=2**32)], "m.onnx"),
    "no inputs": ([NODE("Conv", [], ["y"])], "not a valid ONNX model"),
}


@pytest.mark.parametrize("name", BROKEN_GRAPHS)
def test_broken_graph_is_refused_with_the_culprit(tmp_path: Path, make_model, name: str) -> None:
    nodes, message = BROKEN_GRAPHS[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(make_model(nodes).SerializeToString())
    with pytest.raises(InputError, match=message) as caught:
        load_onnx(path)
    assert "\n" not in str(caught.value)


def test_initializer_twice_short_data_and_bad_dims_are_refused(tmp_path: Path, make_model) -> None:
    path = tmp_path / "m.onnx"
    for change, message in (
        (lambda graph: graph.initializer.append(graph.initializer[0]), "'w' more than once"),
        (lambda graph: graph.initializer[0].dims.append(2), "432 bytes"),
        (lambda graph: graph.initializer[0].dims.__setitem__(0, -4), "dimensions no tensor"),
        (lambda graph: graph.initializer[0].dims.extend([2**40] * 3), "432 bytes"),
        (lambda graph: graph.initializer[0].dims.extend([1] * 100), "dimensions no tensor"),
    ):
        model = make_model()
        change(model.graph)
        path.write_bytes(model.SerializeToString())
        with pytest.raises(InputError, match=message):
            load_onnx(path)


@pytest.mark.parametrize("version", [0, 999])
def test_unknown_opset_is_refused(tmp_path: Path, make_model, version: int) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(make_model(opset=version).SerializeToString())
    with pytest.raises(InputError, match=f"opset {version}"):
        load_onnx(path)


def test_dynamic_input_is_refused_until_its_shape_is_given(tmp_path: Path, make_model) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(make_model(shape=["N", 3, "H", 8], output=["N", 4, "H", 8]), path)
    with pytest.raises(InputError, match=r"'x'.*\[N, 3, H, 8\].*--input-shape 1,3,360,8"):
        load_onnx(path)
    model = load_onnx(path, input_shapes=parse_input_shapes(["1,3,8,8"]))
    assert input_tensors(model)["x"].shape == (1, 3, 8, 8)
    dims = model.graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [1, 4, 8, 8]
    with pytest.raises(InputError, match="does not fit"):
        load_onnx(path, input_shapes={"": (3, 8, 8)})
    with pytest.raises(InputError, match="cannot compute with"):
        load_onnx(path, input_shapes={"": (1, 4, 8, 8)})
    with pytest.raises(InputError, match="no input for 'z'"):
        load_onnx(path, input_shapes={"z": (1, 3, 8, 8)})


def test_a_free_batch_becomes_one_sample(tmp_path: Path, make_model) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(make_model(shape=["N", 3, 8, 8], output=["N", 4, 8, 8]), path)
    model = load_onnx(path)
    assert input_tensors(model)["x"].shape == (1, 3, 8, 8)
    dims = model.graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [1, 4, 8, 8]
    assert find_free_batches(path) == {"x": "N"}
    given = load_onnx(path, input_shapes={"": (2, 3, 8, 8)})
    assert input_tensors(given)["x"].shape == (2, 3, 8, 8)


def test_a_free_axis_of_points_is_no_batch(tmp_path: Path) -> None:
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["points", 4]) for name in "xy"
    ]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    assert find_free_batches(path) == {}
    with pytest.raises(InputError, match=r"\[points, 4\]"):
        load_onnx(path)


def test_the_one_of_several_inputs_whose_shape_is_missing_is_named(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Concat", ["image", "state"], ["y"], axis=1)],
        "two",
        [
            helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, "h", 8]),
            helper.make_tensor_value_info("state", onnx.TensorProto.FLOAT, [1, 2, "h", 8]),
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    path = tmp_path / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    with pytest.raises(InputError, match="--input-shape state=1,2,360,8"):
        load_onnx(path, input_shapes={"image": (1, 3, 8, 8)})


def test_a_stated_shape_can_be_replaced(tmp_path: Path, make_model) -> None:
    """As of a network that was exported with a batch of 10 small pictures."""
    path = tmp_path / "m.onnx"
    onnx.save(make_model(shape=[10, 3, 8, 8], output=[10, 4, 8, 8]), path)
    model = load_onnx(path, input_shapes={"": (1, 3, 16, 24)})
    dims = model.graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [1, 4, 16, 24]
    assert run(model, np.ones((1, 3, 16, 24), f32)).shape == (1, 4, 16, 24)


def test_an_output_whose_sizes_inference_cannot_find_keeps_its_rank(tmp_path: Path) -> None:
    """Shapes that are computed from the input's defeat the inference; the file is sound."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["f"], ["m"], keepdims=1),
        helper.make_node("Cast", ["m"], ["i"], to=onnx.TensorProto.INT64),
        helper.make_node("Concat", ["i", "rest"], ["r"], axis=0),
        helper.make_node("Reshape", ["x", "r"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", 1, ["N", 3])
    y = helper.make_tensor_value_info("y", 1, ["M", "N", 1])
    rest = onnx.numpy_helper.from_array(np.array([-1, 1]), "rest")
    graph = helper.make_graph(nodes, "g", [x], [y], [rest])
    opsets = [helper.make_opsetid("", 11)]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    model = load_onnx(path, input_shapes={"": (2, 3)})
    assert len(model.graph.output[0].type.tensor_type.shape.dim) == 3
    assert run(model, np.ones((2, 3), f32)).shape == (3, 2, 1)


def test_a_domain_that_no_node_uses_is_allowed(tmp_path: Path, make_model) -> None:
    path = tmp_path / "m.onnx"
    model = make_model(opset=13)
    model.opset_import.append(helper.make_opsetid("Paddle", 1))
    onnx.save(model, path)
    assert opset.model_opset(load_onnx(path)) == 17


@pytest.mark.parametrize("named", ["import", "nodes", "both"])
def test_the_standard_operators_have_two_names(tmp_path: Path, make_model, named: str) -> None:
    path = tmp_path / "m.onnx"
    model = make_model(opset=13)
    x = np.random.default_rng(0).random((1, 3, 8, 8), f32)
    wanted = run(model, x)
    if named != "nodes":
        model.opset_import[0].domain = "ai.onnx"
    if named != "import":
        for node in model.graph.node:
            node.domain = "ai.onnx"
    onnx.save(model, path)
    loaded = load_onnx(path)
    assert [(item.domain, item.version) for item in loaded.opset_import] == [("", 17)]
    np.testing.assert_allclose(run(loaded, x), wanted, rtol=1e-6)


@pytest.mark.parametrize("text", ["", "1,3,x", "1,,3", "0,3,8,8", "-1,3", "1.5,2", "x=", "٣,3"])
def test_bad_input_shape_option_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--input-shape"):
        parse_input_shapes([text])


def test_input_shapes_by_name() -> None:
    shapes = parse_input_shapes(["1,3,4,5", "a=1,2", "b:0=1x2x3"])
    assert shapes == {"": (1, 3, 4, 5), "a": (1, 2), "b:0": (1, 2, 3)}


SIZE = {"s": f32([1, 1, 2, 2])}
SHRINK = {"s": f32([1, 1, 0.5, 0.5])}
OLD = {
    "Upsample 7": (7, [NODE("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 2.0])], {}),
    "Upsample 9": (9, [NODE("Upsample", ["x", "s"], ["y"], mode="linear")], SIZE),
    "Resize 10": (10, [NODE("Resize", ["x", "s"], ["y"], mode="linear")], SIZE),
    "Resize 10 down": (10, [NODE("Resize", ["x", "s"], ["y"], mode="nearest")], SHRINK),
    "Clip 6": (9, [NODE("Clip", ["x"], ["y"], min=0.2, max=0.6)], {}),
    "Pad 2": (9, [NODE("Pad", ["x"], ["y"], pads=[0, 0, 1, 1, 0, 0, 1, 1])], {}),
    "Slice 1": (9, [NODE("Slice", ["x"], ["y"], axes=[2], starts=[0], ends=[4])], {}),
    "Dropout 7": (9, [NODE("Dropout", ["x"], ["y"], ratio=0.5)], {}),
    "Softmax 1": (9, [NODE("Softmax", ["x"], ["y"], axis=1)], {}),
    "ReduceSum 1": (11, [NODE("ReduceSum", ["x"], ["y"], axes=[2, 3])], {}),
    "BatchNormalization 9": (
        9,
        [NODE("BatchNormalization", ["x", "a", "a", "b", "a"], ["y"])],
        {"a": f32([1, 2, 3]), "b": f32([0.1, 0.2, 0.3])},
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_old_operator_is_converted_with_its_meaning(
    tmp_path: Path, make_model, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name != "Clip 6":
        monkeypatch.setattr(opset, "_run_child", opset_child.run)
    version, nodes, weights = OLD[name]
    old = make_model(nodes, weights=weights, opset=version, ir_version=3)
    if weights:
        listed = [onnx.numpy_helper.to_array(item) for item in old.graph.initializer]
        old.graph.input.extend(
            helper.make_tensor_value_info(item.name, 1, values.shape)
            for item, values in zip(old.graph.initializer, listed, strict=True)
        )
    path = tmp_path / "m.onnx"
    path.write_bytes(old.SerializeToString())
    model = load_onnx(path)
    assert model.opset_import[0].version == opset.TARGET_OPSET
    old.ir_version = 4
    assert list(input_tensors(model)) == ["x"]
    x = np.random.default_rng(2).normal(size=(1, 3, 8, 8)).astype(f32)
    np.testing.assert_allclose(run(model, x), run(old, x), atol=1e-6)


def test_conversion_that_changes_the_outputs_is_refused(
    tmp_path: Path, make_model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: without our mending of Resize, the converter moves every feature."""
    model = make_model(OLD["Resize 10"][1], weights=SIZE, opset=10)
    source, target = tmp_path / "s.onnx", tmp_path / "t.onnx"
    source.write_bytes(model.SerializeToString())
    assert opset_child.run(source, target, 17)["max_difference"] < 1e-6
    monkeypatch.setattr(opset_child, "RESIZE_SEMANTICS_OPSET", 0)
    damaged = opset_child.run(source, target, 17)
    assert damaged["max_difference"] > opset.MAX_RELATIVE_DIFFERENCE
    monkeypatch.setattr(opset, "_run_child", lambda *_: damaged)
    with pytest.raises(InputError, match="opset 10 to 17: the converted outputs differ"):
        opset.upgrade_opset(model, source)


@pytest.mark.parametrize("code", ["import os; os.abort()", "import sys; sys.exit('boom')"])
def test_converter_that_dies_is_an_error_not_a_crash(
    tmp_path: Path, make_model, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    (tmp_path / "opset_child.py").write_text(code)
    monkeypatch.setattr(opset, "__file__", str(tmp_path / "opset.py"))
    with pytest.raises(InputError, match=r"the converter (crashed|failed)"):
        opset.upgrade_opset(make_model(opset=11), tmp_path / "m.onnx")


def test_converter_that_hangs_is_an_error(
    tmp_path: Path, make_model, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "opset_child.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(opset, "__file__", str(tmp_path / "opset.py"))
    monkeypatch.setattr(opset, "TIMEOUT_S", 0.5)
    with pytest.raises(InputError, match="did not finish"):
        opset.upgrade_opset(make_model(opset=11), tmp_path / "m.onnx")


def test_doubled_and_missing_node_names_become_unique(tmp_path: Path, make_model) -> None:
    nodes = [
        NODE("Relu", ["x"], ["a"], name="same"),
        NODE("Relu", ["a"], ["b"], name="same"),
        NODE("Relu", ["b"], ["y"]),
    ]
    onnx.save(make_model(nodes), tmp_path / "m.onnx")
    names = [node.name for node in load_onnx(tmp_path / "m.onnx").graph.node]
    assert names[0] == "same"
    assert len(set(names)) == 3
    assert all(names)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("ultraface/version-RFB-320.onnx", (1, 3, 240, 320)),
        ("fastestdet/FastestDet.onnx", (1, 3, 352, 352)),
    ],
)
def test_real_old_networks_are_converted(name: str, shape: tuple[int, ...]) -> None:
    if not (REAL / name).exists():
        pytest.skip(f"{REAL / name} is not there")
    model = load_onnx(REAL / name)
    assert model.opset_import[0].version == opset.TARGET_OPSET
    assert [item.shape for item in input_tensors(model).values()] == [shape]


@pytest.mark.parametrize("scale", [0.0, -0.1, np.nan, np.inf])
def test_scale_that_is_not_positive_is_refused(tmp_path: Path, make_model, scale: float) -> None:
    weights = {"s": np.array([0.1, scale, 0.1], f32), "z": np.zeros(3, np.int8)}
    nodes = [
        NODE("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
        NODE("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1),
    ]
    onnx.save(make_model(nodes, weights=weights), tmp_path / "m.onnx")
    with pytest.raises(InputError, match="scales above 0"):
        load_onnx(tmp_path / "m.onnx")


def test_deeply_nested_sub_graphs_are_refused(tmp_path: Path) -> None:
    def field(number: int, content: bytes) -> bytes:
        size, length = len(content), b""
        while size > 0x7F:
            length += bytes([size & 0x7F | 0x80])
            size >>= 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    graph = b""
    for _ in range(3000):
        graph = field(1, field(5, field(6, graph)))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x08" + field(8, field(2, b"\x10\x11")) + field(7, graph))
    with pytest.raises(InputError):
        load_onnx(path)


def test_file_larger_than_2_gib_is_refused_without_reading_it(
    tmp_path: Path, model_file: Path
) -> None:
    with model_file.open("r+b") as stream:
        stream.truncate(2**31)
    with pytest.raises(InputError, match="larger than 2 GiB"):
        load_onnx(model_file)
