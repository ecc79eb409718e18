"""States of recurrent networks: what frames are given, and errors that build up over them."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from artifacts.array_samples import ArraySamples
from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from artifacts.onnx_inputs import input_tensors
from artifacts.recurrence import Recurrence
from artifacts.samples import TensorShape, spread_indices
from compress.compare import compare_models
from compress.own_states import FramesWithStates, compare_own_states
from compress.quantize.api import quantize_model

FRAMES = 24


class ConvGRU(nn.Module):
    """Finds a blob in noisy frames, which takes a memory."""

    def __init__(self):
        super().__init__()
        self.gates, self.new = nn.Conv2d(12, 16, 3, 1, 1), nn.Conv2d(12, 8, 3, 1, 1)
        self.look, self.mask = nn.Conv2d(1, 4, 3, 1, 1), nn.Conv2d(8, 1, 1)

    def forward(self, frame, h):
        seen = self.look(frame).relu()
        update, reset = self.gates(torch.cat([seen, h], 1)).sigmoid().chunk(2, 1)
        new = self.new(torch.cat([seen, reset * h], 1)).tanh()
        h = (1 - update) * h + update * new
        return self.mask(h), h


def make_frames(seed, count=1):
    """Returns noisy frames [T, count, 1, 16, 16] of a blob that drifts, and where it is."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:16, :16]
    path = rng.uniform(3, 12, (1, count, 2)) + np.cumsum(rng.normal(0, 0.3, (FRAMES, count, 2)), 0)
    far = (y - path[..., :1, None]) ** 2 + (x - path[..., 1:, None]) ** 2
    masks = (far < 6)[:, :, None].astype(np.float32)
    return masks + rng.normal(0, 0.7, masks.shape).astype(np.float32), masks


@pytest.fixture(scope="module")
def gru(tmp_path_factory):
    """A ConvGRU that was trained on sequences, and its weights as ONNX."""
    torch.manual_seed(0)
    network = ConvGRU()
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for step in range(40):
        frames, masks = (torch.from_numpy(item) for item in make_frames(step, 4))
        h = torch.zeros(4, 8, 16, 16)
        loss = torch.zeros(())
        for frame, mask in zip(frames[:8], masks[:8], strict=True):
            answer, h = network(frame, h)
            loss = loss + nn.functional.binary_cross_entropy_with_logits(answer, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    path = tmp_path_factory.mktemp("gru") / "gru.onnx"
    torch.onnx.export(
        network.eval(),
        (torch.zeros(1, 1, 16, 16), torch.zeros(1, 8, 16, 16)),
        path,
        input_names=["frame", "h"],
        output_names=["mask", "h_next"],
        dynamo=False,
    )
    return network, load_onnx(path)


def make_integrator():
    """A network that adds up what it sees: no error is ever forgotten."""
    rng = np.random.default_rng(0)
    constants = {
        "w1": rng.standard_normal((16, 8)).astype(np.float32),
        "w2": rng.standard_normal((2, 16)).astype(np.float32) / 100,
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1"], ["a"], "first", transB=1),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Gemm", ["b", "w2"], ["move"], "second", transB=1),
        helper.make_node("Add", ["pose", "move"], ["pose_next"], "add"),
    ]
    graph = helper.make_graph(
        nodes,
        "integrator",
        [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, s])
            for n, s in (("x", 8), ("pose", 2))
        ],
        [helper.make_tensor_value_info("pose_next", TensorProto.FLOAT, [1, 2])],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def frames_of(model, arrays, states, name="frame"):
    """Returns frames without states."""
    needed = {key: item for key, item in input_tensors(model).items() if key not in states}
    return ArraySamples([{name: array} for array in arrays], needed)


def test_a_trained_gru_is_calibrated_with_the_states_of_the_module(gru) -> None:
    network, model = gru
    frames, _ = make_frames(99)
    recurrence = Recurrence.parse(["h=h_next"], 12)
    given = frames_of(model, frames, recurrence.states)
    samples = FramesWithStates(model, given, recurrence, limit=6)
    kept, h = [], torch.zeros(1, 8, 16, 16)
    with torch.no_grad():
        for index, frame in enumerate(torch.from_numpy(frames)):
            h = torch.zeros_like(h) if index in (0, 12) else h
            kept.append({"frame": frames[index], "h": h.numpy().copy()})
            h = network(frame, h)[1]
    rows = [int(name) for name in samples.names]
    assert rows == spread_indices(24, 6)
    assert {row // 4 for row in rows} == set(range(6))
    for sample, row in zip(samples, rows, strict=True):
        np.testing.assert_allclose(sample["h"], kept[row]["h"], atol=1e-5)
        assert np.array_equal(sample["frame"], kept[row]["frame"])


def test_errors_of_a_trained_gru_build_up_and_are_forgotten(gru) -> None:
    _, model = gru
    recurrence = Recurrence.parse(["h=h_next"])
    calibration, held_out = (
        FramesWithStates(
            model, frames_of(model, make_frames(seed)[0], recurrence.states), recurrence
        )
        for seed in (99, 98)
    )
    quantized = quantize_model(model, calibration).model
    single = compare_models(model, quantized, held_out)["outputs"]["h_next"]["sqnr_db"]
    own = compare_own_states(model, quantized, held_out)["h_next"]
    assert single > 25
    assert single - 15 < own["own_states_db"] < single
    assert own["own_states_end_db"] > own["own_states_db"] - 6


def test_an_integrator_whose_single_frames_are_good_is_found() -> None:
    model = make_integrator()
    rng = np.random.default_rng(1)
    recurrence = Recurrence.parse(["pose=pose_next"])
    moves = rng.standard_normal((200, 1, 8)).astype(np.float32)
    samples = FramesWithStates(
        model, frames_of(model, moves, recurrence.states, "x"), recurrence, limit=32
    )
    quantized = quantize_model(model, samples).model
    single = compare_models(model, quantized, samples)["outputs"]["pose_next"]["sqnr_db"]
    assert single > 40
    assert compare_own_states(model, quantized, samples)["pose_next"]["own_states_db"] < single - 15


def test_each_sequence_begins_with_the_state_of_its_first_frame() -> None:
    model = make_integrator()
    given = [
        {"x": np.zeros((1, 8), np.float32), "pose": np.full((1, 2), index, np.float32)}
        for index in range(6)
    ]
    frames = ArraySamples(given, input_tensors(model))
    samples = FramesWithStates(model, frames, Recurrence.parse(["pose=pose_next"], 3))
    assert [float(sample["pose"][0, 0]) for sample in samples] == [0, 0, 0, 3, 3, 3]


def test_black_and_white_frames_have_the_first_states() -> None:
    class Known(ArraySamples):
        extremes = tuple({"x": np.full((1, 8), level, np.float32)} for level in (0, 1))

    model = make_integrator()
    given = [{"x": np.ones((1, 8), np.float32), "pose": np.full((1, 2), 4, np.float32)}] * 3
    frames = Known(given, input_tensors(model))
    samples = FramesWithStates(model, frames, Recurrence.parse(["pose=pose_next"]))
    black, white = samples.extremes
    assert [float(sample["x"].max()) for sample in (black, white)] == [0, 1]
    assert np.array_equal(black["pose"], samples[0]["pose"])


@pytest.mark.parametrize(
    ("frames", "length", "ends"),
    [(8, None, {6, 7}), (3, None, {2}), (10, 4, {3, 7, 9}), (16, 8, {6, 7, 14, 15})],
)
def test_the_last_quarter_of_each_sequence(frames, length, ends) -> None:
    assert Recurrence.parse(["a=b"], length).find_ends(frames) == ends


@pytest.mark.parametrize(
    ("texts", "length", "message"),
    [
        (["h"], None, "INPUT=OUTPUT"),
        (["=b"], None, "INPUT=OUTPUT"),
        (["a=b", "a=c"], None, "two states"),
        ([], 4, "no state"),
        (["a=b"], 1, "at least 2"),
        (["pose=nothing"], None, "is no output"),
        (["nothing=pose_next"], None, "is no input"),
        (["x=pose_next"], None, r"output 'pose_next' is float32 \[1, 2\]"),
        (["x=pose_next", "pose=pose_next"], None, "every input is a state"),
    ],
)
def test_what_is_no_state_is_refused(texts, length, message) -> None:
    model = make_integrator()
    inputs = {"pose": TensorShape((1, 2))}
    frames = ArraySamples([{"pose": np.zeros((1, 2), np.float32)}] * 3, inputs)
    with pytest.raises(InputError, match=message):
        FramesWithStates(model, frames, Recurrence.parse(texts, length))


def test_nothing_given_is_no_recurrence() -> None:
    assert Recurrence.parse([]) is None
