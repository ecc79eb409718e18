"""`--state`: commands on networks that read what they computed in the frame before."""

import json

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

STATE = ("--state", "h=h_next")


@pytest.fixture
def recurrent(folder):
    """A network of a picture and a state that forgets slowly."""
    rng = np.random.default_rng(0)
    constants = {
        "w1": rng.standard_normal((6, 3, 3, 3)).astype(np.float32) / 4,
        "w2": rng.standard_normal((6, 6, 3, 3)).astype(np.float32) / 8,
        "kept": np.float32(0.9),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["seen"], "look", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["seen"], ["positive"], "relu"),
        helper.make_node("Mul", ["h", "kept"], ["old"], "forget"),
        helper.make_node("Add", ["positive", "old"], ["h_next"], "add"),
        helper.make_node("Conv", ["h_next", "w2"], ["mask"], "head", pads=[1, 1, 1, 1]),
    ]
    shapes = {"image": [1, 3, 8, 12], "h": [1, 6, 8, 12], "mask": [1, 6, 8, 12]}
    shapes["h_next"] = shapes["h"]
    infos = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    }
    graph = helper.make_graph(
        nodes,
        "recurrent",
        [infos["image"], infos["h"]],
        [infos["mask"], infos["h_next"]],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "recurrent.onnx")
    return folder / "recurrent.onnx"


def test_frames_alone_give_the_file_that_frames_with_states_give(run, recurrent, folder) -> None:
    from artifacts.onnx_file import load_onnx
    from compress.model_runner import open_runner

    frames = np.random.default_rng(1).random((12, 3, 8, 12), np.float32)
    network, h, states = open_runner(load_onnx(recurrent)), np.zeros((1, 6, 8, 12), np.float32), []
    for frame in frames:
        states.append(h)
        h = network({"image": frame[None], "h": h})["h_next"]
    np.savez(folder / "frames.npz", image=frames)
    np.savez(folder / "all.npz", image=frames, h=np.concatenate(states))
    quantize = ("compress", "quantize", recurrent, "--no-timing", "--data")
    assert run(*quantize, "all.npz", "--out", "all.onnx").code == 0
    result = run(*quantize, "frames.npz", *STATE, "--out", "frames.onnx", "--json", "done.json")
    assert result.code == 0, result.err
    assert "own states" in result.out
    assert (folder / "all.onnx").read_bytes() == (folder / "frames.onnx").read_bytes()
    mask = json.loads((folder / "done.json").read_text())["outputs"]["mask"]
    assert mask["own_states_db"] < mask["sqnr_db"]


def test_pictures_are_frames_in_the_order_of_their_names(run, recurrent, folder) -> None:
    (folder / "clip").mkdir()
    rng = np.random.default_rng(2)
    for index in range(8):
        picture = rng.integers(0, 256, (8, 12, 3), np.uint8)
        cv2.imwrite(str(folder / "clip" / f"{index:03}.png"), picture)
    spec = ("--pixel-scale", "0.01", *STATE)
    done = run("compress", "quantize", recurrent, "--data", "clip", "--no-timing", *spec)
    assert done.code == 0, done.err
    result = run(
        *("compress", "compare", recurrent, "recurrent.int8.onnx", "--data", "clip", "--samples"),
        *("4", "--sequence-frames", "4", "--json", "compared.json", *spec),
    )
    assert result.code == 0, result.err
    assert "own states" in result.out
    compared = json.loads((folder / "compared.json").read_text())
    assert compared["samples"] == 4
    figures = compared["outputs"]["h_next"]
    assert figures["own_states_db"] < figures["sqnr_db"]
    assert "own_states_end_db" in figures


def test_diagnose_takes_frames_too(run, recurrent, folder) -> None:
    frames = np.random.default_rng(3).random((16, 3, 8, 12), np.float32)
    np.savez(folder / "frames.npz", image=frames)
    result = run("compress", "diagnose", recurrent, "--data", "frames.npz", *STATE)
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--state", "h=mask_next"), "is no output"),
        (("--state", "h"), "INPUT=OUTPUT"),
        (("--sequence-frames", "4"), "no state"),
        ((), "'h' [samples, 6, 8, 12] float32"),
    ],
)
def test_a_wrong_state_is_bad_input(options, message, run, recurrent, folder) -> None:
    np.savez(folder / "frames.npz", image=np.ones((4, 3, 8, 12), np.float32))
    result = run("compress", "quantize", recurrent, "--data", "frames.npz", *options)
    assert result.code == 2
    assert message in result.err


def test_the_state_named_may_have_a_batch_that_the_file_does_not_say(
    run, recurrent, folder
) -> None:
    model = onnx.load(recurrent)
    add = next(node for node in model.graph.node if node.op_type == "Add")
    add.output[0] = "sum"
    sized = [
        helper.make_node("NonZero", ["ones"], ["places"]),
        helper.make_node("ReduceMax", ["places"], ["last"], axes=[1], keepdims=0),
        helper.make_node("Add", ["last", "sizes"], ["shape"]),
        helper.make_node("Reshape", ["sum", "shape"], ["h_next"]),
    ]
    constants = {"sizes": np.array([1, 6, 8, 12]), "ones": np.ones(1, np.float32)}
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    for node in reversed(sized):
        model.graph.node.insert(4, node)
    model.graph.output[1].type.tensor_type.shape.dim[0].dim_param = "unk__0"
    onnx.save(model, recurrent)
    np.savez(folder / "frames.npz", image=np.zeros((4, 3, 8, 12), np.float32))
    result = run("compress", "quantize", recurrent, "--data", "frames.npz")
    assert result.code == 2
    assert result.err.rstrip().endswith("--state h=h_next")


def test_no_output_is_named_as_that_of_two_states(run, recurrent, folder) -> None:
    model = onnx.load(recurrent)
    model.graph.input.append(
        helper.make_tensor_value_info("other", TensorProto.FLOAT, [1, 6, 8, 12])
    )
    model.graph.node.append(helper.make_node("Identity", ["other"], ["other_next"], "keep"))
    model.graph.output.append(
        helper.make_tensor_value_info("other_next", TensorProto.FLOAT, [1, 6, 8, 12])
    )
    for old, new in (("h_next", "output_2"), ("other_next", "output_3")):
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [new if name == old else name for name in names]
        for value in model.graph.output:
            value.name = new if value.name == old else value.name
    del model.graph.output[0]
    onnx.save(model, recurrent)
    np.savez(folder / "frames.npz", image=np.zeros((4, 3, 8, 12), np.float32))
    result = run("compress", "quantize", recurrent, "--data", "frames.npz")
    assert result.code == 2
    assert result.err.rstrip().endswith("--state h=output_2 --state other=output_3")


def test_data_without_the_state_name_the_option(run, recurrent, folder) -> None:
    np.savez(folder / "frames.npz", image=np.zeros((4, 3, 8, 12), np.float32))
    np.savez(folder / "states.npz", h=np.zeros((4, 6, 8, 12), np.float32))
    (folder / "pictures").mkdir()
    cv2.imwrite(str(folder / "pictures" / "0.png"), np.zeros((8, 12, 3), np.uint8))
    for data in ("frames.npz", "pictures"):
        for command in ("quantize", "diagnose"):
            result = run("compress", command, recurrent, "--data", data)
            assert result.code == 2
            assert result.err.rstrip().endswith("--state h=h_next")
    assert "--state" not in run("compress", "quantize", recurrent, "--data", "states.npz").err
    assert "--state" not in run("export", "trt", recurrent, "--data", "frames.npz").err
