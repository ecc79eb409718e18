import json

import numpy as np
import onnx
import pytest
import timm
import torch
from torch import nn

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from engines.runtimes import open_session
from export.exporters import OPSET, export_with
from export.to_onnx import export_onnx, verify_export

SHAPE = (1, 3, 32, 48)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.depth = nn.Conv2d(8, 1, 1)
        self.boxes = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        features = self.trunk(x)
        return {"depth": self.depth(features), "boxes": [self.boxes(features), features.mean()]}


class DependsOnData(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        features = self.conv(x)
        if features.abs().sum() > -1:
            return features
        return -features


class RoughBelowZero(nn.Module):
    """Adds the rounding of sums, a million times enlarged, where no pixel is above 0."""

    def __init__(self):
        super().__init__()
        self.sums = nn.Conv2d(3, 8, 3)
        nn.init.uniform_(self.sums.weight, 0.1, 1)
        nn.init.zeros_(self.sums.bias)

    def forward(self, x):
        sums = self.sums(x)
        return sums + torch.sin(1e7 * (-sums).relu())


def run(path, x):
    with open_session(path, "onnxruntime") as session:
        return session.run({session.inputs[0].name: x})


def test_a_module_becomes_a_static_named_self_contained_file(tmp_path, capfd):
    module = TwoHeads().train()
    spec = InputSpec(color="bgr")
    path = export_onnx(
        module,
        tmp_path / "model.onnx",
        input_shape=SHAPE,
        input_spec=spec,
        heads={"depth": {"outputs": ["depth"]}},
        metadata={"framefit.parent_sha256": "0" * 64},
    )
    assert capfd.readouterr() == ("", "")
    assert module.training
    assert module.trunk[1].training

    model = onnx.load(path, load_external_data=False)
    onnx.checker.check_model(model)
    assert [item.version for item in model.opset_import if not item.domain] == [OPSET]
    assert all(tensor.data_location == 0 for tensor in model.graph.initializer)
    assert str(tmp_path.anchor + "work").encode() not in model.SerializeToString()
    assert "BatchNormalization" not in {node.op_type for node in model.graph.node}
    metadata = {item.key: item.value for item in model.metadata_props}
    assert InputSpec.from_json(metadata["framefit.input_spec"]) == spec
    assert json.loads(metadata["framefit.heads"]) == {"depth": {"outputs": ["depth"]}}
    assert metadata["framefit.parent_sha256"] == "0" * 64

    x = np.random.default_rng(3).normal(size=SHAPE).astype(np.float32)
    outputs = run(path, x)
    assert list(outputs) == ["depth", "boxes_0", "boxes_1"]
    expected = module.eval()(torch.from_numpy(x))
    np.testing.assert_allclose(outputs["depth"], expected["depth"].detach(), atol=1e-5)


def test_a_timm_network_exports(tmp_path):
    module = timm.create_model("mobilenetv3_small_050", pretrained=False, features_only=True)
    notes = []
    path = export_onnx(
        module, tmp_path / "model.onnx", input_shape=(1, 3, 64, 96), notify=notes.append
    )
    assert notes == []
    with open_session(path, "openvino") as session:
        assert [tensor.name for tensor in session.outputs] == [
            f"output_{index}" for index in range(len(session.outputs))
        ]


@pytest.mark.parametrize("exporter", ["torch.export", "torchscript"])
def test_both_exporters_agree_and_a_damaged_export_fails(exporter):
    module = TwoHeads().eval()
    tuple_module = nn.Sequential(module.trunk, module.depth).eval()
    x = torch.randn(SHAPE)
    model = export_with(exporter, tuple_module, [x], ["input"], ["depth"])
    wanted = [{"depth": tuple_module(x).detach().numpy()}]
    assert verify_export(model, [{"input": x}], wanted)["depth"] < 1e-4

    weight = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    damaged = onnx.numpy_helper.to_array(weight).copy()
    damaged.flat[0] += 0.02
    weight.CopyFrom(onnx.numpy_helper.from_array(damaged, weight.name))
    with pytest.raises(InputError, match="'depth' is off by"):
        verify_export(model, [{"input": x}], wanted)


@pytest.mark.parametrize("exporter", ["torch.export", "torchscript"])
def test_a_tensor_that_is_clipped_twice_in_two_ways_keeps_both_bounds(exporter):
    class ClippedTwice(nn.Module):
        def forward(self, x):
            x = x.sigmoid()
            low = x.clamp(min=0.01, max=0.9).clamp(min=0.1)
            return low, x.clamp(min=0.05, max=0.8).clamp(min=0.2)

    module = ClippedTwice().eval()
    x = torch.linspace(-3, 3, 64).reshape(1, 64)
    model = export_with(exporter, module, [x], ["input"], ["low", "high"])
    wanted = [dict(zip(("low", "high"), (y.numpy() for y in module(x)), strict=True))]
    assert max(verify_export(model, [{"input": x}], wanted).values()) < 1e-6


def test_a_check_of_all_values_is_left_out_by_the_first_exporter(tmp_path):
    """`torch._check_tensor_all`, as RT-DETRv2 and D-FINE of `transformers` call it."""

    class Checked(nn.Module):
        def forward(self, x):
            weights = x.softmax(1)
            torch._check_tensor_all(weights >= 0)
            return weights * 2

    told = []
    path = export_onnx(Checked(), tmp_path / "m.onnx", input_shape=(1, 8), notify=told.append)
    assert told == []
    assert [node.op_type for node in onnx.load(path).graph.node] == ["Softmax", "Mul"]


def test_the_second_exporter_takes_what_the_first_refuses_and_says_so(tmp_path, capfd):
    notes = []
    path = export_onnx(
        DependsOnData(), tmp_path / "model.onnx", input_shape=SHAPE, notify=notes.append
    )
    assert len(notes) == 1
    assert notes[0].startswith("torch.export cannot export it")
    assert "\n" not in notes[0]
    assert capfd.readouterr() == ("", "")
    settings = {item.key: item.value for item in onnx.load(path).metadata_props}
    assert json.loads(settings["framefit.settings"])["exporter"] == "torchscript"


def test_what_cannot_be_exported_is_one_line_and_leaves_the_old_file(tmp_path):
    class Impossible(nn.Module):
        def forward(self, x):
            return torch.from_numpy(np.sort(x.detach().numpy())) * x

    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    with pytest.raises(InputError, match=r"not finite|cannot be exported") as caught:
        export_onnx(Impossible(), path, input_shape=SHAPE)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"old"


def test_a_detector_that_selects_its_boxes_is_told_where_to_stop(tmp_path):
    class Selects(nn.Module):
        def forward(self, boxes):
            return {"kept": boxes[boxes[:, 0] > 0.5]}

    with pytest.raises(InputError, match=r"'kept' has the shape \[\?, 4\], which the data decide"):
        export_onnx(Selects(), tmp_path / "m.onnx", input_shape=(9, 4))
    with pytest.raises(InputError, match="wrap it in a module that returns what it selects from"):
        export_onnx(Selects(), tmp_path / "m.onnx", input_shape=(9, 4))


def test_a_network_is_checked_on_pictures_as_its_input_spec_prepares_them(tmp_path):
    torch.manual_seed(0)
    module = RoughBelowZero()
    path = export_onnx(module, tmp_path / "m.onnx", input_shape=SHAPE)
    x = torch.rand(SHAPE)
    np.testing.assert_allclose(run(path, x.numpy())["output"], module(x).detach(), rtol=1e-4)
    darker = InputSpec(mean=(1.0, 1.0, 1.0))
    with pytest.raises(InputError, match="is off by"):
        export_onnx(module, tmp_path / "m.onnx", input_shape=SHAPE, input_spec=darker)


def test_wrong_shapes_and_weights_are_named(tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(InputError, match="cannot run with the input shape"):
        export_onnx(TwoHeads(), path, input_shape=(1, 4, 32, 48))
    with pytest.raises(InputError, match="whole numbers above 0"):
        export_onnx(TwoHeads(), path, input_shape=(1, 3, 0, 48))
    broken = TwoHeads()
    broken.depth.bias.data[:] = float("nan")
    with pytest.raises(InputError, match="'depth' is not finite"):
        export_onnx(broken, path, input_shape=SHAPE)
    assert not path.exists()


class Counts(nn.Module):
    """A convolution of what differs from a mean that each forward pass moves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        self.mean = 0.5 * self.mean + 0.5 * x.mean()
        return self.layer(x - self.mean)


def test_buffers_that_a_forward_pass_writes_stay_as_they_are(tmp_path):
    module = Counts().eval()
    x = torch.rand(SHAPE) + 1
    export_onnx(module, tmp_path / "m.onnx", input_shape=SHAPE)
    assert module.calls == 0
    assert module.mean == 0
    np.testing.assert_allclose(
        run(tmp_path / "m.onnx", x.numpy())["output"], module(x).detach(), rtol=1e-4, atol=1e-5
    )


class Remembers(nn.Module):
    """Adds a ramp that is made again when pictures have another size than the last ones."""

    def __init__(self) -> None:
        super().__init__()
        self.size = None
        self.register_buffer("ramp", torch.zeros(1), persistent=False)

    def forward(self, x):
        if self.size != x.shape:
            self.ramp, self.size = torch.linspace(0, 1, x.shape[-1]), x.shape
        return x + self.ramp


def test_a_buffer_made_for_a_size_is_made_again(tmp_path):
    module = Remembers().eval()
    export_onnx(module, tmp_path / "m.onnx", input_shape=SHAPE)
    assert module.size is None
    x = torch.rand(SHAPE)
    np.testing.assert_allclose(run(tmp_path / "m.onnx", x.numpy())["output"], module(x), rtol=1e-5)


class TakesKeys(nn.Module):
    def forward(self, batch):
        return batch["image"] * 2


class TakesKeyword(nn.Module):
    def forward(self, x, *, scale):
        return x * scale


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (TakesKeys(), "expected a forward that takes one tensor for each input"),
        (TakesKeyword(), "or an argument by keyword alone"),
        (nn.Conv2d(3, 4, 1).half(), "expected a network that computes in float32"),
        (nn.Conv2d(3, 4, 1).double(), "expected a network that computes in float32"),
        (nn.Conv2d(3, 4, 1, bias=False).half(), "expected a network that computes in float32"),
    ],
)
def test_what_no_shape_would_mend_is_told_apart(tmp_path, module, message):
    with pytest.raises(InputError, match=message):
        export_onnx(module, tmp_path / "m.onnx", input_shape=SHAPE)
