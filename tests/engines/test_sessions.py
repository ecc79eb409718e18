"""One contract over the table of runtimes."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import InputError
from engines.runtimes import BACKENDS, SessionSettings, list_runtimes, open_session

ONNX_RUNTIMES = [name for name, backend in BACKENDS.items() if ".onnx" in backend.suffixes]
COMPUTING = [name for name in ONNX_RUNTIMES if name != "null"]


@pytest.mark.parametrize("runtime", ONNX_RUNTIMES)
def test_a_session_declares_its_tensors_and_returns_them_by_name(runtime, model_path, image):
    with open_session(model_path, runtime) as session:
        outputs = session.run({"image": image})
        assert session.runtime == runtime
        assert [(t.name, t.shape, t.dtype) for t in session.inputs] == [
            ("image", (1, 3, 8, 10), np.float32)
        ]
        assert list(outputs) == [t.name for t in session.outputs] == ["zone", "area"]
        for tensor in session.outputs:
            assert outputs[tensor.name].shape == tensor.shape
            assert outputs[tensor.name].dtype == tensor.dtype
        assert session.describe()["runtime"] == runtime


@pytest.mark.parametrize("runtime", COMPUTING)
def test_outputs_agree_with_numpy(runtime, model_path, image):
    with open_session(model_path, runtime) as session:
        outputs = session.run({"image": image})
        doubled = session.run({"image": 2 * image})
    np.testing.assert_allclose(doubled["zone"], 2 * outputs["zone"], rtol=1e-4, atol=1e-5)
    assert outputs["zone"].min() == 0
    assert np.abs(outputs["area"]).max() > 1e-3


def test_the_runtimes_agree_with_one_another(model_path, image):
    results = []
    for runtime in COMPUTING:
        with open_session(model_path, runtime) as session:
            results.append(session.run({"image": image}))
    for result in results[1:]:
        for name, expected in results[0].items():
            np.testing.assert_allclose(result[name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("runtime", COMPUTING)
def test_returned_arrays_are_not_changed_by_later_runs(runtime, model_path, image):
    with open_session(model_path, runtime) as session:
        first = session.run({"image": image})
        kept = {name: array.copy() for name, array in first.items()}
        session.run({"image": -image})
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])


@pytest.mark.parametrize("runtime", ONNX_RUNTIMES)
def test_borrowed_outputs_hold_what_a_run_returns(runtime, model_path, image):
    with open_session(model_path, runtime) as session:
        for picture in (image, -image):
            borrowed = session.run_borrowed({"image": picture})
            kept = {name: array.copy() for name, array in borrowed.items()}
            returned = session.run({"image": picture})
            assert list(kept) == list(returned)
            for name, array in returned.items():
                np.testing.assert_array_equal(kept[name], array)
                assert array.dtype == kept[name].dtype


@pytest.mark.parametrize("runtime", COMPUTING)
def test_a_feed_that_is_not_contiguous_is_read_rightly(runtime, model_path, image):
    flipped = image[..., ::-1]
    with open_session(model_path, runtime) as session:
        expected = session.run({"image": np.ascontiguousarray(flipped)})
        actual = session.run({"image": flipped})
    np.testing.assert_array_equal(actual["zone"], expected["zone"])


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_an_input_without_axes_is_a_number(runtime, tmp_path):
    """What a driver's network is told of the moment: a speed, the time since the last frame."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [2]), ("speed", []))
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    node = helper.make_node("Mul", ["x", "speed"], ["y"])
    graph = helper.make_graph([node], "scaled", inputs, [output])
    path = tmp_path / "scaled.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    with open_session(path, runtime) as session:
        feeds = {"x": np.array([1, 2], np.float32), "speed": np.array(3, np.float32)}
        np.testing.assert_allclose(session.run(feeds)["y"], [3, 6])


@pytest.mark.parametrize("runtime", ONNX_RUNTIMES)
@pytest.mark.parametrize(
    ("feeds", "complaint"),
    [
        ({}, "'image' is missing"),
        ({"image": np.zeros((1, 3, 8, 9), np.float32)}, r"shape \[1, 3, 8, 9\]"),
        ({"image": np.zeros((1, 3, 8, 10), np.float64)}, "is float64; expected float32"),
        ({"image": [[1.0]]}, "is a list"),
        ({"picture": np.zeros((1, 3, 8, 10), np.float32)}, "'picture' is not one of"),
    ],
)
def test_wrong_feeds_are_refused(runtime, feeds, complaint, model_path):
    with (
        open_session(model_path, runtime) as session,
        pytest.raises(InputError, match=complaint),
    ):
        session.run(feeds)


@pytest.mark.parametrize("runtime", ONNX_RUNTIMES)
def test_closing_twice_is_harmless(runtime, model_path):
    session = open_session(model_path, runtime)
    session.close()
    session.close()


@pytest.mark.parametrize("runtime", list(BACKENDS))
def test_files_that_are_no_models_are_refused(runtime, tmp_path, model_path):
    suffix = BACKENDS[runtime].suffixes[0]
    text = tmp_path / f"text{suffix}"
    text.write_text("this is no model\n" * 20)
    empty = tmp_path / f"empty{suffix}"
    empty.touch()
    other = tmp_path / "model.txt"
    other.write_text("x")
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    for path in (text, empty, other, folder, tmp_path / f"missing{suffix}"):
        with pytest.raises(InputError) as caught:
            open_session(path, runtime)
        assert path.name in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("runtime", ONNX_RUNTIMES)
def test_a_truncated_model_is_refused_before_the_runtime_sees_it(runtime, model_path):
    content = model_path.read_bytes()
    model_path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="truncated"):
        open_session(model_path, runtime)


@pytest.mark.parametrize("runtime", ONNX_RUNTIMES)
def test_a_dynamic_input_needs_a_shape(runtime, dynamic_path, image):
    with pytest.raises(InputError, match=r"--input-shape image=1,3,360,10"):
        open_session(dynamic_path, runtime)
    for name in ("image", ""):
        settings = SessionSettings(input_shapes={name: (1, 3, 8, 10)})
        with open_session(dynamic_path, runtime, settings) as session:
            assert session.inputs[0].shape == (1, 3, 8, 10)
            assert session.run({"image": image})["zone"].shape[:2] == (1, 4)
    unknown = SessionSettings(input_shapes={"picture": (1, 3, 8, 10)})
    with pytest.raises(InputError, match="'picture'"):
        open_session(dynamic_path, runtime, unknown)


@pytest.mark.parametrize("runtime", ONNX_RUNTIMES)
def test_a_free_batch_is_one_sample_unless_a_shape_says_otherwise(runtime, free_batch_path, image):
    with open_session(free_batch_path, runtime) as session:
        assert session.inputs[0].shape == (1, 3, 8, 10)
        assert session.run({"image": image})["zone"].shape == (1, 4, 8, 10)
    settings = SessionSettings(input_shapes={"": (2, 3, 8, 10)})
    with open_session(free_batch_path, runtime, settings) as session:
        assert session.inputs[0].shape == (2, 3, 8, 10)


@pytest.mark.parametrize("runtime", ONNX_RUNTIMES)
def test_what_a_cpu_runtime_cannot_give_is_an_error(runtime, model_path):
    with pytest.raises(InputError, match="CUDA graph"):
        open_session(model_path, runtime, SessionSettings(cuda_graph=True))
    with pytest.raises(InputError, match="device is 1"):
        open_session(model_path, runtime, SessionSettings(device=1))


def test_openvino_says_what_it_got(model_path):
    with open_session(model_path, "openvino", SessionSettings(threads=1)) as session:
        description = session.describe()
    assert description["precision"] == {"asked": "f32", "got": "f32"}
    assert description["threads"] == {"asked": 1, "got": 1}
    assert description["layers"]["f32"] >= 1
    assert not {"i8", "u8", "bf16", "f16"} & set(description["layers"])


def test_the_default_runtime_follows_the_suffix(model_path, tmp_path):
    with open_session(model_path) as session:
        assert session.runtime == "openvino"
    with pytest.raises(InputError, match="no kind that a runtime opens"):
        open_session(tmp_path / "model.pb")
    with pytest.raises(InputError, match="runtime is 'tflite'"):
        open_session(model_path, "tflite")


def test_every_runtime_reports_its_status():
    statuses = {status.name: status for status in list_runtimes()}
    assert list(statuses) == list(BACKENDS)
    for status in statuses.values():
        assert status.available != bool(status.reason)


def test_importing_engines_imports_no_heavy_runtime():
    code = (
        "import sys, engines.runtimes, engines.target\n"
        "heavy = {'torch', 'openvino', 'onnxruntime', 'tensorrt', 'tensorrt_rtx', 'cuda', 'onnx',"
        " 'cv2', 'pycuda'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert result.stdout.strip() == "[]"


def test_onnxruntime_computes_a_quantized_network_as_written(tmp_path, image):
    """Without care it rounds the float bias to a multiple of scale x weight scale = 0.25."""
    constants = {
        "scale": np.float32(0.5),
        "zero": np.int8(0),
        "weight": np.random.default_rng(2).integers(-3, 4, (4, 3, 1, 1), dtype=np.int8),
        "weight_scale": np.float32(0.5),
        "bias": np.array([0.1, -0.12, 0.36, -0.39], np.float32),
        "out_scale": np.float32(0.1),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["image", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["x"]),
        helper.make_node("DequantizeLinear", ["weight", "weight_scale", "zero"], ["w"]),
        helper.make_node("Conv", ["x", "w", "bias"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "out_scale", "zero"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "out_scale", "zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "qdq",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, image.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 8, 10))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    path = tmp_path / "qdq.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    rounded = np.clip(np.rint(image / 0.5), -128, 127) * 0.5
    weights = constants["weight"][:, :, 0, 0] * 0.5
    sums = np.einsum("oc,nchw->nohw", weights, rounded) + constants["bias"][:, None, None]
    expected = np.clip(np.rint(sums / 0.1), -128, 127) * 0.1
    with open_session(path, "onnxruntime") as session:
        assert np.abs(session.run({"image": image})["y"] - expected).mean() < 0.005


def test_threads_of_sessions_that_take_turns_rest_between_inferences(tmp_path):
    """Those of other sessions go on looking for work, on the processors of the next one."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.normal(size=(512, 512)).astype(np.float32), "w")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [256, 512]) for n in ("x", "y")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "product", ends[:1], ends[1:], [weight])
    path = tmp_path / "product.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    feeds = {"x": rng.normal(size=(256, 512)).astype(np.float32)}

    def idle_cpu_s(*, takes_turns):
        settings = SessionSettings(threads=2, takes_turns=takes_turns)
        used = 0.0
        with open_session(path, "onnxruntime", settings) as session:
            for _ in range(20):
                session.run(feeds)
                start = time.process_time()
                time.sleep(0.005)
                used += time.process_time() - start
        return used

    assert idle_cpu_s(takes_turns=True) < 0.5 * idle_cpu_s(takes_turns=False)


def test_openvino_takes_results_of_onnxruntime(tmp_path):
    """Theirs are `longlong` where others are `long`, which numpy takes for the same type."""
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        "integers",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [3])],
    )
    path = tmp_path / "integers.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    given = np.array([1, 2, 3], np.longlong)
    with open_session(path, runtime="openvino") as session:
        np.testing.assert_array_equal(session.run({"x": given})["y"], -given)
