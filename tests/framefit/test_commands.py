"""`compress quantize` and `compress compare` from the command line, for every kind of model."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from artifacts.digest import sha256_file
from artifacts.input_spec import InputSpec
from artifacts.onnx_file import load_onnx
from artifacts.onnx_metadata import read_metadata
from framefit.workspace import Workspace

REAL = Path(__file__).parents[2] / "../shared/real"


def test_quantize_writes_a_small_traceable_model(run, network: Path, pictures: Path) -> None:
    result = run("compress", "quantize", network, "--data", pictures, "--json", "report.json")
    assert result.code == 0, result.err
    assert "logits" in result.out
    assert result.err.startswith("warning: nothing says how pixels become the input")
    report = json.loads(Path("report.json").read_text())
    out = Path("net.int8.onnx")
    assert report["sha256"] == sha256_file(out)
    assert report["samples"] == 4
    assert report["outputs"]["logits"]["sqnr_db"] > 20
    model = load_onnx(out)
    assert {"QuantizeLinear", "DequantizeLinear"} <= {node.op_type for node in model.graph.node}
    metadata = read_metadata(model)
    assert metadata["framefit.parent_sha256"] == sha256_file(network)
    assert InputSpec.from_json(metadata["framefit.input_spec"]) == InputSpec()
    assert json.loads(metadata["framefit.settings"])["quantize"]["target"] == "tensorrt"
    assert Workspace().find_artifact("int8-onnx") == out


def test_quantizing_twice_gives_the_same_bytes(run, network: Path, pictures: Path) -> None:
    digests = set()
    for name in ("a.onnx", "b.onnx"):
        assert run("compress", "quantize", network, "--data", pictures, "--out", name).code == 0
        digests.add(sha256_file(name))
    assert len(digests) == 1


@pytest.mark.usefixtures("with_vnni")
def test_spec_is_stored_and_checked_afterwards(run, network: Path, pictures: Path) -> None:
    data = ("--data", pictures)
    spec = ("--color", "bgr", "--mean", "0.5,0.4,0.3", "--std", "0.2,0.2,0.2")
    result = run("compress", "quantize", network, *data, *spec)
    assert result.code == 0
    assert result.err == ""
    stored = InputSpec.from_json(read_metadata(onnx.load("net.int8.onnx"))["framefit.input_spec"])
    assert stored == InputSpec(color="bgr", mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2))
    assert run("compress", "compare", network, "net.int8.onnx", *data, *spec).code == 0
    for option in (("--color", "rgb"), ("--mean", "0,0,0"), ("--resize", "letterbox")):
        result = run("compress", "compare", "net.int8.onnx", "net.int8.onnx", *data, *option)
        assert result.code == 2
        assert "the model says" in result.err


@pytest.mark.usefixtures("with_vnni")
def test_framefit_toml_gives_spec_and_datasets(run, network: Path, pictures: Path) -> None:
    Path("framefit.toml").write_text(
        f'[input]\ncolor = "bgr"\n[datasets]\ncalibration = "{pictures}"\n'
    )
    result = run("compress", "quantize", network, "--data", "calibration")
    assert result.code == 0, result.err
    assert result.err == ""
    stored = read_metadata(onnx.load("net.int8.onnx"))["framefit.input_spec"]
    assert InputSpec.from_json(stored).color == "bgr"
    result = run("compress", "quantize", network, "--data", "calibration", "--color", "rgb")
    assert result.code == 2
    assert "framefit.toml says bgr" in result.err


@pytest.mark.usefixtures("with_vnni")
def test_npz_needs_no_spec_and_stores_none(run, network: Path) -> None:
    values = np.random.default_rng(0).uniform(size=(6, 3, 16, 24)).astype(np.float32)
    np.savez("data.npz", image=values)
    result = run("compress", "quantize", network, "--data", "data.npz", "--samples", 5)
    assert result.code == 0
    assert result.err == ""
    assert "5 samples" in result.out
    assert "framefit.input_spec" not in read_metadata(onnx.load("net.int8.onnx"))


def test_compare_of_a_model_with_itself_is_exact(run, network: Path, pictures: Path) -> None:
    result = run("compress", "compare", network, network, "--data", pictures, "--json", "c.json")
    assert result.code == 0
    outputs = json.loads(Path("c.json").read_text())["outputs"]
    assert outputs["logits"]["max_abs"] == 0
    assert outputs["logits"]["agreement"] == 1
    assert outputs["logits"]["sqnr_db"] > 100


def test_compare_tells_a_damaged_model_from_a_good_one(run, network: Path, pictures: Path) -> None:
    figures = []
    damaged = onnx.load(network)
    values = onnx.numpy_helper.to_array(damaged.graph.initializer[1])[::-1].copy()
    damaged.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(values, "w2"))
    onnx.save(damaged, "damaged.onnx")
    assert run("compress", "quantize", network, "--data", pictures).code == 0
    for name in ("net.int8.onnx", "damaged.onnx"):
        run("compress", "compare", network, name, "--data", pictures, "--json", "c.json")
        figures.append(json.loads(Path("c.json").read_text())["outputs"]["logits"])
    assert figures[0]["sqnr_db"] > figures[1]["sqnr_db"] + 15
    assert figures[0]["agreement"] > figures[1]["agreement"] + 0.2


def test_compare_takes_the_spec_of_the_candidate_where_the_reference_has_none(
    run, network: Path, pictures: Path
) -> None:
    result = run("compress", "quantize", network, "--data", pictures, "--color", "bgr")
    assert result.code == 0, result.err
    result = run("compress", "compare", network, "net.int8.onnx", "--data", pictures)
    assert result.code == 0, result.err
    assert "warning" not in result.err


def test_compare_names_the_head_of_each_output(run, network: Path, pictures: Path) -> None:
    model = onnx.load(network)
    heads = {"segmentation": {"outputs": ["logits"]}}
    onnx.helper.set_model_props(model, {"framefit.heads": json.dumps(heads)})
    onnx.save(model, network)
    result = run("compress", "compare", network, network, "--data", pictures)
    assert any(line.split()[:2] == ["logits", "segmentation"] for line in result.out.splitlines())


def test_compare_takes_an_only_input_of_another_name(run, network: Path, pictures: Path) -> None:
    """Exports by hand seldom call it as the module's argument is called."""
    other = onnx.load(network)
    old = other.graph.input[0].name
    other.graph.input[0].name = "camera"
    for node in other.graph.node:
        node.input[:] = ["camera" if name == old else name for name in node.input]
    onnx.save(other, "other.onnx")
    result = run(
        "compress", "compare", network, "other.onnx", "--data", pictures, "--json", "c.json"
    )
    assert result.code == 0, result.err
    assert json.loads(Path("c.json").read_text())["outputs"]["logits"]["max_abs"] == 0


def test_compare_refuses_networks_of_other_inputs(run, network: Path, pictures: Path) -> None:
    other = onnx.load(network)
    other.graph.input[0].type.tensor_type.shape.dim[3].dim_value = 32
    other.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(other, "other.onnx")
    result = run("compress", "compare", network, "other.onnx", "--data", pictures)
    assert result.code == 2
    assert "[1, 3, 16, 32]" in result.err


FACTORY = """
import torch
def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))
"""


def test_plain_weights_and_pt2_become_the_same_model(run, folder: Path, pictures: Path) -> None:
    torch = pytest.importorskip("torch")
    (folder / "my_factory.py").write_text(FACTORY)
    names: dict[str, object] = {}
    exec(FACTORY, names)
    module = names["make"]().eval()
    torch.save(module.state_dict(), "weights.pt")
    program = torch.export.export(module, (torch.zeros(1, 3, 16, 24),))
    torch.export.save(program, "program.pt2")
    data = ("--data", pictures)
    factory = ("--factory", "my_factory:make")
    result = run("compress", "quantize", "weights.pt", *data, *factory)
    assert result.code == 2
    assert "--input-shape" in result.err
    factory = (*factory, "--input-shape", "1,3,16,24")
    assert run("compress", "quantize", "weights.pt", *data, *factory).code == 0
    result = run("compress", "quantize", "program.pt2", *data)
    assert result.code == 0, result.err
    for name in ("weights.int8.onnx", "program.int8.onnx"):
        assert sum(node.op_type == "Conv" for node in onnx.load(name).graph.node) == 2


@pytest.mark.usefixtures("with_vnni")
def test_our_checkpoint_brings_its_shape_spec_and_heads(run, folder: Path, pictures: Path) -> None:
    pytest.importorskip("torch")
    from artifacts.checkpoint import Checkpoint, save_checkpoint
    from perception.network import build

    config = {"height": 64, "width": 64, "neck_channels": 8, "heads": {"depth": {}}}
    spec = InputSpec(color="bgr", mean=(0.1, 0.1, 0.1))
    save_checkpoint(
        "road.pt",
        Checkpoint(
            builder="perception.network:build",
            config=config,
            input_spec=spec,
            state_dict=build(config).state_dict(),
        ),
    )
    result = run("compress", "quantize", "road.pt", "--data", pictures)
    assert result.code == 0, result.err
    assert result.err == ""
    metadata = read_metadata(onnx.load("road.int8.onnx"))
    assert InputSpec.from_json(metadata["framefit.input_spec"]) == spec
    assert json.loads(metadata["framefit.heads"])["depth"]["outputs"] == ["depth"]


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize(
    ("model", "data", "spec", "floors_db"),
    [
        (
            "ultraface/version-RFB-320.onnx",
            "ultraface/images",
            ("--pixel-scale", "0.0078125", "--mean", "0.9921875,0.9921875,0.9921875"),
            {"scores": 40.0, "boxes": 40.0},
        ),
        ("fastestdet/FastestDet.onnx", "fastestdet/images", ("--color", "bgr"), {"758": 9.0}),
    ],
    ids=["ultraface", "fastestdet"],
)
def test_real_networks_of_old_opsets(
    run, folder: Path, model: str, data: str, spec: tuple[str, ...], floors_db: dict[str, float]
) -> None:
    """Half of the pictures calibrate, all are compared on."""
    if not (REAL / model).exists():
        pytest.skip(f"{REAL / model} is not there")
    options = ("--data", (REAL / data).resolve(), *spec)
    source = (REAL / model).resolve()
    assert run("compress", "quantize", source, *options, "--samples", 6).code == 0
    result = run(
        "compress", "compare", source, source.stem + ".int8.onnx", *options, "--json", "c.json"
    )
    assert result.code == 0, result.err
    outputs = json.loads(Path("c.json").read_text())["outputs"]
    for name, floor_db in floors_db.items():
        assert outputs[name]["sqnr_db"] >= floor_db


def test_without_a_model_the_newest_float_one_is_taken(run, network: Path, pictures: Path) -> None:
    result = run("compress", "quantize", "--data", pictures)
    assert result.code == 2
    assert "no MODEL was given" in result.err
    Workspace().record_artifact(network, "float-onnx", "export onnx")
    assert run("compress", "quantize", "--data", pictures).code == 0
    assert Path("net.int8.onnx").is_file()


@pytest.fixture
def posed(folder: Path) -> Path:
    """A network of a picture and its camera's pose, both with the batch `N`."""
    helper, rng = onnx.helper, np.random.default_rng(0)
    weights = rng.normal(size=(8, 3, 3, 3)).astype(np.float32)
    matrix = rng.normal(size=(14, 4)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("GlobalAveragePool", ["c"], ["p"]),
            helper.make_node("Flatten", ["p"], ["f"]),
            helper.make_node("Concat", ["f", "pose"], ["j"], axis=1),
            helper.make_node("MatMul", ["j", "m"], ["y"]),
        ],
        "posed",
        [
            helper.make_tensor_value_info("x", 1, ["N", 3, 16, 16]),
            helper.make_tensor_value_info("pose", 1, ["N", 6]),
        ],
        [helper.make_tensor_value_info("y", 1, ["N", 4])],
        [onnx.numpy_helper.from_array(weights, "w"), onnx.numpy_helper.from_array(matrix, "m")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "posed.onnx")
    x, pose = rng.random((6, 3, 16, 16), np.float32), rng.random((6, 6), np.float32)
    np.savez(folder / "posed.npz", x=x, pose=pose)
    return folder / "posed.onnx"


def test_the_batch_of_a_pose_beside_a_picture_stays_free(run, posed: Path) -> None:
    data = ("--data", posed.with_suffix(".npz"))
    result = run("compress", "quantize", posed, *data, "--out", "free.onnx", "--verbose")
    assert result.code == 0, result.err
    assert "the batch is free" in result.out
    for value in onnx.load("free.onnx").graph.input:
        assert value.type.tensor_type.shape.dim[0].dim_param == "N"
    for runtime in ("onnxruntime", "openvino"):
        result = run("engines", "run", "free.onnx", *data, "--runtime", runtime)
        assert result.code == 0, result.err
    assert run("export", "lint", "free.onnx").code in (0, 1)


def test_a_batch_that_a_shape_fixes_is_said_to_be_so(run, posed: Path) -> None:
    data = ("--data", posed.with_suffix(".npz"))
    shapes = ("--input-shape", "x=1,3,16,16", "--input-shape", "pose=1,6")
    result = run("compress", "quantize", posed, *data, *shapes, "--out", "fixed.onnx")
    assert result.code == 0, result.err
    assert "the batch is fixed, as --input-shape says" in result.out


def test_a_free_batch_stays_free(run, network: Path, pictures: Path) -> None:
    model = onnx.load(network)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, network)
    options = ("--data", pictures, "--out", "free.onnx", "--json", "report.json")
    result = run("compress", "quantize", network, *options)
    assert result.code == 0, result.err
    assert "the batch is free" in result.out
    assert json.loads(Path("report.json").read_text())["has_free_batch"] is True
    dims = onnx.load("free.onnx").graph.input[0].type.tensor_type.shape.dim
    assert dims[0].dim_param == "batch"
    for command in (("compress", "compare", network, "free.onnx"), ("engines", "run", "free.onnx")):
        result = run(*command, "--data", pictures)
        assert result.code == 0, result.err
