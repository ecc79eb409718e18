import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from artifacts.written_slices import join_written_slices
from export.fp16_check import run_model
from export.to_onnx import export_onnx
from export.written_slices import write_without_scatters

RNG = np.random.default_rng(0)
SHAPE = (1, 4, 6, 5)


def make_network(places, update_shape, operator="ScatterND", data=None, **attributes):
    """Returns data and updates → scatter → y; 'data' is an input where no constant is given."""
    scatter = helper.make_node(
        operator, ["data", "places", "update"], ["y"], "scatter", **attributes
    )
    inputs = {"data": SHAPE, "update": update_shape}
    held = [numpy_helper.from_array(np.asarray(places, np.int64), "places")]
    if data is not None:
        held.append(numpy_helper.from_array(data, "data"))
        del inputs["data"]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in inputs.items()
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)
    graph = helper.make_graph([scatter], "writes", infos, [output], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def grid(*slices):
    """Returns the place of each value of a box, as ScatterND wants them."""
    return np.stack(np.meshgrid(*(np.arange(*pair) for pair in slices), indexing="ij"), axis=-1)


def draw_inputs(model):
    shapes = {
        item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        for item in model.graph.input
    }
    return {name: RNG.standard_normal(shape, np.float32) for name, shape in shapes.items()}


WRITES = {
    "a box in places of all values": (grid((0, 1), (1, 3), (2, 6), (1, 4)), (1, 2, 4, 3), {}),
    "whole rows": (grid((0, 1), (1, 3), (4, 6)), (1, 2, 2, 5), {}),
    "places from behind": (grid((0, 1), (1, 4), (-3, -1)), (1, 3, 2, 5), {}),
    "a slice along an axis": (
        np.broadcast_to(np.arange(2, 4)[:, None], (1, 4, 2, 5)),
        (1, 4, 2, 5),
        {"operator": "ScatterElements", "axis": 2},
    ),
    "a corner": (
        np.broadcast_to(np.arange(3)[:, None], (1, 2, 3, 2)),
        (1, 2, 3, 2),
        {"operator": "ScatterElements", "axis": -2},
    ),
    "into zeros": (
        grid((0, 1), (0, 4), (0, 6), (2, 5)),
        (1, 4, 6, 3),
        {"data": np.zeros(SHAPE, np.float32)},
    ),
    "into the middle of zeros": (
        grid((0, 1), (0, 4), (1, 5), (2, 4)),
        (1, 4, 4, 2),
        {"data": np.zeros(SHAPE, np.float32)},
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_written_slice_is_what_its_neighbours_and_it_join(name):
    places, shape, more = WRITES[name]
    model = make_network(places, shape, **more)
    inputs = draw_inputs(model)
    (wanted,) = run_model(model, [inputs])
    written = write_without_scatters(model)
    assert {node.op_type for node in written.graph.node} <= {"Concat", "Identity", "Pad", "Slice"}
    onnx.checker.check_model(written, full_check=True)
    np.testing.assert_array_equal(run_model(written, [inputs])[0]["y"], wanted["y"])


STAYING = {
    "every second place": (grid((0, 1), (0, 4), (0, 6, 2)), (1, 4, 3, 5), {}),
    "places in another order": (grid((0, 1), (0, 4), (0, 6))[:, :, ::-1], (1, 4, 6, 5), {}),
    "sums": (grid((0, 1), (0, 4), (0, 6)), (1, 4, 6, 5), {"reduction": "add"}),
    "unlike slices": (
        RNG.permuted(np.broadcast_to(np.arange(5), SHAPE), axis=3),
        SHAPE,
        {"operator": "ScatterElements", "axis": 3},
    ),
}


@pytest.mark.parametrize("name", STAYING)
def test_other_scatters_stay(name):
    places, shape, more = STAYING[name]
    model = make_network(places, shape, **more)
    before = model.SerializeToString()
    assert write_without_scatters(model).SerializeToString() == before


def test_what_is_read_between_writes_is_what_was_there_then():
    scatter = make_network(grid((0, 1), (0, 4), (2, 4)), (1, 4, 2, 5)).graph.node[0]
    second = helper.make_node("ScatterND", ["y", "others", "late"], ["z"], "again")
    read = helper.make_node("Slice", ["y", "two", "four", "axis"], ["part"], "read")
    late = helper.make_node("Relu", ["part"], ["late"], "relu")
    end = helper.make_node("Neg", ["z"], ["out"], "end")
    weights = {
        "places": grid((0, 1), (0, 4), (2, 4)),
        "others": grid((0, 1), (0, 4), (3, 5)),
        "two": np.array([2]),
        "four": np.array([4]),
        "axis": np.array([2]),
    }
    shapes = dict.fromkeys(("data", "y", "z", "out"), SHAPE)
    shapes |= dict.fromkeys(("update", "part", "late"), (1, 4, 2, 5))
    written = join_written_slices([scatter, read, late, second, end], weights, shapes, ["out"])
    assert written is not None
    kinds = [node.op_type for node in written.nodes]
    assert kinds == ["Relu", "Slice", "Slice", "Slice", "Concat", "Neg"]
    assert written.nodes[0].input == ["update"]
    assert written.replaced == ["scatter", "again"]


def test_a_batch_of_one_is_named_nowhere():
    """A batch that is free in the file is one sample while the network is quantized."""
    update = helper.make_node("Unsqueeze", ["x", "two"], ["u"], "unsqueeze")
    scatter = helper.make_node("ScatterElements", ["data", "places", "u"], ["y"], "write", axis=2)
    end = helper.make_node("Neg", ["y"], ["out"], "end")
    places = np.full((1, 4, 1, 5), 3)
    shapes = {"x": (1, 4, 5), "u": (1, 4, 1, 5)} | dict.fromkeys(("data", "y", "out"), SHAPE)
    weights = {"places": places, "two": np.array([2])}
    written = join_written_slices([update, scatter, end], weights, shapes, ["out"])
    assert written is not None
    kinds = [node.op_type for node in written.nodes]
    assert kinds == ["Slice", "Unsqueeze", "Slice", "Concat", "Neg"]
    named = [node for node in written.nodes if node.op_type in ("Slice", "Unsqueeze")]
    assert all(written.weights[node.input[-1]].tolist() == [2] for node in named)


class CostVolume(nn.Module):
    """Fills a volume of features at every disparity in place, as PSMNet's code does."""

    def forward(self, left, right):
        count, channels, height, width = left.shape
        cost = left.new_zeros(count, 2 * channels, 6, height, width)
        for shift in range(6):
            cost[:, :channels, shift, :, shift:] = left[..., shift:]
            cost[:, channels:, shift, :, shift:] = right[..., : width - shift]
        return cost


def test_a_cost_volume_is_exported_without_a_place_for_every_value(tmp_path):
    shapes = {"left": (1, 4, 10, 20), "right": (1, 4, 10, 20)}
    path = export_onnx(CostVolume(), tmp_path / "cost.onnx", input_shape=shapes)
    model = onnx.load(path)
    kinds = [node.op_type for node in model.graph.node]
    assert not {"ScatterElements", "ScatterND", "Transpose"} & set(kinds)
    assert kinds.count("Concat") < 10
    assert sum(numpy_helper.to_array(item).nbytes for item in model.graph.initializer) < 4000
    pair = [torch.rand(shape) for shape in shapes.values()]
    feeds = {name: tensor.numpy() for name, tensor in zip(shapes, pair, strict=True)}
    (result,) = run_model(model, [feeds])
    np.testing.assert_array_equal(result["output"], CostVolume()(*pair).numpy())
