"""`framefit export onnx`: which outputs the file has."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from artifacts.errors import InputError
from framefit.workspace import Workspace

FACTORY = """
from torch import nn

class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Conv2d(3, 8, 3, padding=1)
        self.depth, self.boxes = nn.Conv2d(8, 1, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x):
        trunk = self.trunk(x)
        return {"features": trunk, "depth": self.depth(trunk), "boxes": self.boxes(trunk)}
"""
SHAPE = ("--factory", "my_heads:Heads", "--input-shape", "1,3,16,24")


@pytest.fixture
def weights(folder: Path) -> Path:
    """Weights of a network of three outputs, and its factory."""
    torch = pytest.importorskip("torch")
    (folder / "my_heads.py").write_text(FACTORY)
    names: dict[str, object] = {}
    exec(FACTORY, names)
    torch.save(names["Heads"]().state_dict(), folder / "weights.pt")
    return folder / "weights.pt"


def _outputs(path: Path | str) -> list[str]:
    return [item.name for item in onnx.load(path).graph.output]


def test_a_module_is_exported_with_the_outputs_that_are_asked_for(run, weights: Path) -> None:
    chosen = ("--output", "boxes", "--output", "depth")
    result = run("export", "onnx", weights, *SHAPE, *chosen, "--json", "said.json")

    assert result.code == 0, result.err
    assert _outputs("weights.onnx") == ["boxes", "depth"]
    assert "features" not in result.out
    said = json.loads(Path("said.json").read_text())
    assert said["outputs"] == ["boxes", "depth"]
    assert list(said["parity_max_abs"]) == ["boxes", "depth"]


@pytest.mark.parametrize("suffix", [".ckpt", ".bin", ".pth.tar"])
def test_every_command_takes_weights_as_trainings_name_them(
    weights: Path, folder: Path, suffix: str
) -> None:
    from framefit.model_source import ModelOptions, open_model

    named = weights.rename(folder / f"model_best{suffix}")
    opened = open_model(named, ModelOptions(("1,3,16,24",), "my_heads:Heads"))
    assert list(opened.sample_shapes.values()) == [(1, 3, 16, 24)]


def test_an_output_that_a_module_lacks_is_refused_with_those_it_has(run, weights: Path) -> None:
    result = run("export", "onnx", weights, *SHAPE, "--output", "bokses")

    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "'bokses' is no output of the module; expected boxes" in result.err
    assert not Path("weights.onnx").exists()


def test_an_onnx_is_cut_at_a_tensor_inside(run, network: Path, pictures: Path) -> None:
    inside = onnx.load(network).graph.node[1].output[0]
    result = run("export", "onnx", network, "--output", inside, "--color", "rgb")

    assert result.code == 0, result.err
    assert "net.cut.onnx: ends at b" in result.out
    assert [node.name for node in onnx.load("net.cut.onnx").graph.node] == ["first", "relu"]
    assert run("compress", "quantize", "net.cut.onnx", "--data", pictures).code == 0


def test_an_onnx_stays_as_it_is_where_nothing_can_be_cut(run, network: Path) -> None:
    before = network.read_bytes()
    for options, text in (
        ((), "net.onnx is an .onnx already"),
        (("--output", "nowhere"), "'nowhere' is no output or tensor of the network"),
        (("--output", "b", "--out", network), "the network itself"),
    ):
        result = run("export", "onnx", network, *options)
        assert result.code == 2
        assert text in result.err
        assert result.err.count("\n") == 1
    assert network.read_bytes() == before
    assert not Path("net.cut.onnx").exists()


def test_a_cut_file_computes_what_the_whole_one_computes(run, network: Path) -> None:
    import onnxruntime

    assert run("export", "onnx", network, "--output", "b", "--out", "cut.onnx").code == 0
    whole = onnx.load(network)
    whole.graph.output.append(onnx.helper.make_tensor_value_info("b", 1, None))
    feeds = {"image": np.random.default_rng(0).random((1, 3, 16, 24), np.float32)}
    found, wanted = (
        onnxruntime.InferenceSession(model).run(["b"], feeds)[0]
        for model in ("cut.onnx", whole.SerializeToString())
    )
    np.testing.assert_array_equal(found, wanted)


def test_what_is_cut_of_integers_is_kept_as_such(run, network: Path, pictures: Path) -> None:
    assert run("compress", "quantize", network, "--data", pictures).code == 0
    result = run("export", "onnx", "net.int8.onnx", "--output", "b")

    assert result.code == 0, result.err
    assert Workspace().find_artifact("int8-onnx").name == "net.int8.cut.onnx"
    with pytest.raises(InputError):
        Workspace().find_artifact("float-onnx")
