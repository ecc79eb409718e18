"""Inputs of `.onnx` files that are dynamic get the shapes of the data that are given anyway."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import framefit
from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from artifacts.onnx_inputs import input_tensors
from framefit.budget_job import make_recipe
from tests.framefit.conftest import make_network, own_weights

ROWS = np.random.default_rng(0).random((6, 3, 16, 24)).astype(np.float32)


def make_dynamic() -> onnx.ModelProto:
    model = make_network()
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in ((0, "batch"), (2, "height"), (3, "width")):
            value.type.tensor_type.shape.dim[axis].dim_param = name
    return model


@pytest.fixture
def dynamic(folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save(make_dynamic(), path)
    return path


def write_rows() -> str:
    np.savez("rows.npz", image=ROWS)
    return "rows.npz"


def write_files() -> str:
    Path("files").mkdir()
    for index, row in enumerate(ROWS):
        np.save(f"files/{index}.npy", row)
    return "files"


@pytest.mark.parametrize("write", [write_rows, write_files])
def test_arrays_say_the_shape_of_a_dynamic_input(run, dynamic: Path, write) -> None:
    data = ("--data", write())
    done = run("compress", "quantize", dynamic, *data)
    assert done.code == 0, done.err
    assert "'image' is dynamic and taken as [1, 3, 16, 24]" in done.err
    assert input_tensors(load_onnx("net.int8.onnx"))["image"].shape == (1, 3, 16, 24)
    for command in (("compare", dynamic, "net.int8.onnx"), ("diagnose", dynamic)):
        done = run("compress", *command, *data)
        assert done.code == 0, done.err


def test_files_of_arrays_say_the_shape_of_a_module(run, folder: Path) -> None:
    source = "from torch import nn\ndef make():\n    return nn.Conv2d(3, 8, 3)\n"
    with own_weights(folder, "filed_factory", source) as weights:
        factory = ("--factory", "filed_factory:make")
        done = run("compress", "quantize", weights, *factory, "--data", write_files())
    assert done.code == 0, done.err
    assert input_tensors(load_onnx("weights.int8.onnx"))["input"].shape == (1, 3, 16, 24)


def test_the_other_network_says_the_shape_to_compare_with(
    run, dynamic: Path, pictures: Path
) -> None:
    data = ("--data", pictures)
    done = run("compress", "quantize", dynamic, *data)
    assert done.code == 2
    assert "--input-shape 1,3,360,640" in done.err
    shape = ("--input-shape", "1,3,16,24")
    assert run("compress", "quantize", dynamic, *data, *shape).code == 0
    done = run("compress", "compare", dynamic, "net.int8.onnx", *data)
    assert done.code == 0, done.err


def test_an_array_that_does_not_fit_is_no_shape(run, dynamic: Path) -> None:
    np.savez("grey.npz", image=ROWS[:, :1])
    done = run("compress", "quantize", dynamic, "--data", "grey.npz")
    assert done.code == 2
    assert "dynamic shape [batch, 3, height, width]" in done.err


def test_points_without_a_batch_have_as_many_as_the_samples(run, folder: Path) -> None:
    tensor = onnx.helper.make_tensor_value_info
    weight = onnx.numpy_helper.from_array(np.eye(4, 8, dtype=np.float32), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["points", "w"], ["y"], name="layer")],
        "points",
        [tensor("points", onnx.TensorProto.FLOAT, ["n", 4])],
        [tensor("y", onnx.TensorProto.FLOAT, ["n", 8])],
        [weight],
    )
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), "p.onnx"
    )
    np.savez("p.npz", points=ROWS[:, 0, :, :4])
    done = run("compress", "quantize", "p.onnx", "--data", "p.npz")
    assert done.code == 0, done.err
    assert "'points' is dynamic and taken as [16, 4]" in done.err


def test_data_of_a_program_say_the_shape_of_a_dynamic_input(dynamic: Path) -> None:
    batches = [ROWS[:4], ROWS[4:]]
    settings = framefit.QuantizeSettings()
    for network in (dynamic, make_dynamic()):
        result = framefit.quantize(network, batches, settings)
        assert input_tensors(result.model)["image"].shape == (1, 3, 16, 24)
        assert framefit.compare(network, result.model, batches)["logits"]["sqnr_db"] > 20
    with pytest.raises(InputError, match="dynamic shape"):
        framefit.quantize(dynamic, ROWS[:, :1], settings)


@pytest.mark.parametrize("is_named", [False, True])
def test_runtimes_take_the_shapes_of_arrays(run, dynamic: Path, is_named: bool) -> None:
    data = write_rows()
    if is_named:
        np.savez(data, image=ROWS, labels=np.zeros(6))
    done = run("engines", "run", dynamic, "--data", data, "--out", "outputs.npz")
    assert done.code == 0, done.err
    with np.load("outputs.npz") as outputs:
        assert outputs["logits"].shape == (6, 4, 16, 24)
    runtimes = ("--runtime", "onnxruntime")
    done = run("engines", "compare", dynamic, "--data", data, *runtimes)
    assert done.code == 0, done.err
    engine = {"runtime": None, "threads": None, "input_shape": None, "data": data}
    found = make_recipe(dynamic, None, None, engine, Path()).arguments["input_shapes"]
    assert found == {"image": [1, 3, 16, 24]}
    given = make_recipe(dynamic, None, None, {**engine, "input_shape": ["1,3,8,8"]}, Path())
    assert given.arguments["input_shapes"] == {"": [1, 3, 8, 8]}
