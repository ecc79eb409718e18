import json
from dataclasses import replace

import onnx
import pytest
import torch
from torch import nn

from artifacts.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from export.network_file import NetworkOptions, export_network_file, open_network
from perception.network import build

CONFIG = {"backbone": "resnet10t", "out_indices": [1, 2], "height": 32, "width": 64}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    module = build({**CONFIG, "neck_channels": 8})
    path = tmp_path_factory.mktemp("checkpoint") / "road.pt"
    content = Checkpoint(
        builder="perception.network:build",
        config=module.config,
        input_spec=InputSpec(color="bgr"),
        state_dict=module.state_dict(),
    )
    return save_checkpoint(path, content)


def metadata_of(path):
    return {item.key: item.value for item in onnx.load(path).metadata_props}


def test_a_checkpoint_brings_its_own_shape_spec_heads_and_output_order(checkpoint, tmp_path):
    notes = []
    path = export_network_file(checkpoint, tmp_path / "road.onnx", notify=notes.append)
    assert notes == []
    graph = onnx.load(path).graph
    heads = json.loads(metadata_of(path)["framefit.heads"])
    promised = [name for head in heads.values() for name in head["outputs"]]
    assert {value.name for value in graph.output} == set(promised)
    dims = [dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim]
    assert dims == [1, 3, 32, 64]
    assert InputSpec.from_json(metadata_of(path)["framefit.input_spec"]).color == "bgr"


def test_another_input_spec_than_the_checkpoints_is_refused(checkpoint):
    with pytest.raises(InputError, match="trained with the input spec"):
        export_network_file(checkpoint, options=NetworkOptions(input_spec=InputSpec()))
    assert not checkpoint.with_suffix(".onnx").exists()


def test_weights_that_do_not_fit_are_named_with_their_file(checkpoint, tmp_path, monkeypatch):
    """Of a student and its teacher one may be of another network."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide_networks.py").write_text(
        "from torch import nn\ndef small():\n    return nn.Sequential(nn.Conv2d(3, 9, 3))\n"
    )
    path = tmp_path / "weights.pt"
    torch.save(nn.Sequential(nn.Conv2d(3, 2, 3)).state_dict(), path)
    with pytest.raises(InputError, match=f"the weights of {path} do not fit the network: 2 of"):
        open_network(path, NetworkOptions(factory="wide_networks:small"))
    content = replace(load_checkpoint(checkpoint), state_dict={"odd": torch.ones(1)})
    other = save_checkpoint(tmp_path / "road.pt", content)
    with pytest.raises(InputError, match=f"the weights of {other} do not fit the network: "):
        open_network(other, NetworkOptions())


def test_plain_weights_need_a_factory_and_a_shape(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exported_networks.py").write_text(
        "from torch import nn\ndef small():\n    return nn.Sequential(nn.Conv2d(3, 2, 3))\n"
    )
    path = tmp_path / "weights.pt"
    torch.save(nn.Sequential(nn.Conv2d(3, 2, 3)).state_dict(), path)
    with pytest.raises(InputError, match="--factory"):
        export_network_file(path)
    with pytest.raises(InputError, match="--input-shape"):
        export_network_file(path, options=NetworkOptions(factory="exported_networks:small"))
    options = NetworkOptions(factory="exported_networks:small", input_shapes={"": (1, 3, 9, 9)})
    out = export_network_file(path, options=options)
    assert out == tmp_path / "weights.onnx"
    assert "framefit.input_spec" not in metadata_of(out)


def test_a_pt2_keeps_its_input_names_and_shapes(tmp_path):
    class TwoInputs(nn.Module):
        def forward(self, left, right):
            return {"sum": left + right, "peak": torch.relu(left).amax(dim=1)}

    program = torch.export.export(TwoInputs().eval(), (torch.ones(1, 2), torch.ones(1, 2)))
    path = tmp_path / "two.pt2"
    torch.export.save(program, path)
    out = export_network_file(path, options=NetworkOptions(input_spec=InputSpec()))
    graph = onnx.load(out).graph
    assert [value.name for value in graph.input] == ["left", "right"]
    assert [value.name for value in graph.output] == ["sum", "peak"]
    with pytest.raises(InputError, match="leave --input-shape out"):
        export_network_file(path, options=NetworkOptions(input_shapes={"left": (1, 3)}))


def test_other_files_and_names_are_refused(tmp_path, checkpoint):
    with pytest.raises(InputError, match="no network that can be exported"):
        export_network_file(tmp_path / "model.onnx")
    with pytest.raises(InputError, match=r"ends in \.onnx"):
        export_network_file(checkpoint, tmp_path / "model.pb")
    with pytest.raises(InputError):
        export_network_file(tmp_path / "missing.pt")


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"picture": (1, 3, 16, 24)}, {"picture": (1, 3, 8, 12), "state": (1, 4, 8, 12)}),
        (
            {"picture": (1, 3, 16, 24), "state": (1, 4, 16, 24)},
            {"picture": (1, 3, 16, 24), "state": (1, 4, 16, 24)},
        ),
    ],
)
def test_a_single_array_is_no_shape_of_a_network_that_takes_more(
    arrays, expected, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tracking_networks.py").write_text(
        "from torch import nn\n"
        "class Tracking(nn.Conv2d):\n"
        "    def forward(self, picture, state, gain=2.0):\n"
        "        return gain * state + super().forward(picture)\n"
        "def build():\n    return Tracking(3, 4, 1)\n"
    )
    path = tmp_path / "weights.pt"
    torch.save(nn.Conv2d(3, 4, 1).state_dict(), path)
    options = NetworkOptions(
        factory="tracking_networks:build",
        sample_shapes=arrays,
        twin_shapes={"picture": (1, 3, 8, 12), "state": (1, 4, 8, 12)},
    )
    assert open_network(path, options)[1] == expected


@pytest.mark.parametrize(
    ("given", "arrays", "expected"),
    [
        ({"state": (1, 4, 8, 12)}, {"picture": (1, 3, 8, 12), "gain": (1,)}, None),
        ({"": (1, 3, 8, 12)}, {}, {"input": (1, 3, 8, 12)}),
        ({}, {"picture": (1, 3, 8, 12)}, "shape of state, of the inputs picture, state of"),
        ({"state": (1, 4, 8, 12)}, {}, "give it with --input-shape picture=1,…$"),
    ],
)
def test_shapes_that_are_given_for_some_inputs_leave_the_others_to_the_data(
    given, arrays, expected, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "partly_networks.py").write_text(
        "from torch import nn\n"
        "class Tracking(nn.Conv2d):\n"
        "    def forward(self, picture, state):\n"
        "        return state + super().forward(picture)\n"
        "def build():\n    return Tracking(3, 4, 1)\n"
    )
    path = tmp_path / "weights.pt"
    torch.save(nn.Conv2d(3, 4, 1).state_dict(), path)
    options = NetworkOptions(
        factory="partly_networks:build", input_shapes=given, sample_shapes=arrays
    )
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            open_network(path, options)
        return
    shapes = expected or {"picture": (1, 3, 8, 12), "state": (1, 4, 8, 12)}
    assert open_network(path, options)[1] == shapes
