import json
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def network(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "v": rng.normal(size=(4, 8, 1, 1)).astype(np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["h"], name="first", pads=[1, 1, 1, 1]),
            helper.make_node("Sigmoid", ["h"], ["s"], name="gate"),
            helper.make_node("Mul", ["h", "s"], ["r"], name="silu"),
            helper.make_node("Conv", ["r", "v"], ["y"], name="second layer"),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 16, 16])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "net.onnx")
    np.savez(folder / "data.npz", x=rng.random((8, 3, 16, 16), np.float32))
    return folder / "net.onnx"


def test_table_json_and_page_agree(run, network: Path) -> None:
    done = run(
        "compress",
        "diagnose",
        network,
        "--data",
        "data.npz",
        "--json",
        "d.json",
        "--html",
        "d.html",
    )
    assert done.code == 0, done.err
    found = json.loads(Path("d.json").read_text())
    page = Path("d.html").read_text()
    for item in found["layers"]:
        assert item["node"] in done.out
        assert item["node"] in page
    assert found["limit"] in done.out
    assert found["limit"] in page
    assert (found["recommended"] or "nothing that was tried") in done.out


def test_a_table_of_many_outputs_keeps_a_line_for_each_layer(run, folder: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"head_{index}_logits" for index in range(9)]
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", name + "_w"], [name], name=f"/{name}/cls_preds/Conv")
            for name in names
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 8, 8]) for name in names],
        [
            numpy_helper.from_array(rng.normal(size=(4, 3, 1, 1)).astype(np.float32), f"{name}_w")
            for name in names
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "many.onnx")
    np.savez(folder / "data.npz", x=rng.random((8, 3, 8, 8), np.float32))
    done = run("compress", "diagnose", "many.onnx", "--data", "data.npz")
    assert done.code == 0, done.err
    for name in names:
        assert any(
            f"/{name}/cls_preds/Conv (Conv)" in line and f"{name}: " in line and "%" in line
            for line in done.out.splitlines()
        ), done.out


def test_each_remedy_is_an_option_of_quantize(run, network: Path) -> None:
    assert run("compress", "diagnose", network, "--data", "data.npz", "--json", "d.json").code == 0
    remedies = json.loads(Path("d.json").read_text())["remedies"]
    assert remedies
    for item in remedies:
        options = shlex.split(shlex.join(item["options"]))
        done = run(
            "compress", "quantize", network, "--data", "data.npz", *options, "--out", "q.onnx"
        )
        assert done.code == 0, done.err


def test_a_target_that_was_given_is_kept(run, network: Path) -> None:
    def propose(*arguments):
        command = ("compress", "diagnose", network, "--data", "data.npz", "--json", "d.json")
        assert run(*command, *arguments).code == 0
        return [item["options"] for item in json.loads(Path("d.json").read_text())["remedies"]]

    assert any("--target" in options for options in propose())
    kept = propose("--target", "tensorrt")
    assert kept
    assert not any("--target" in options for options in kept)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--target", "nowhere"),
        ("--keep-float", "no such node"),
        ("--html", "missing-folder/\0x"),
        ("--rounding", "up"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(run, network: Path, arguments) -> None:
    done = run("compress", "diagnose", network, "--data", "data.npz", *arguments)
    assert done.code == 2
    assert "Traceback" not in done.err
