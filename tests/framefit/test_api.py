"""What Python programs call, with modules and loaders of their own; and the page that shows it."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import compress
import framefit
from artifacts.edits import apply_edits
from artifacts.errors import InputError, MissingExtraError
from artifacts.samples import pick_evenly
from framefit import (
    DistillSettings,
    PruneGoal,
    PruneSettings,
    QuantizeSettings,
    TrainerSettings,
    WidthLimits,
)
from framefit.layer_timing import LayerTimes
from framefit.network_clock import NetworkClock
from tests.framefit.conftest import make_network

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
SIZE = (3, 32, 48)


class RoadNetwork(nn.Module):
    """A backbone with two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU()),
        )
        self.segmentation = nn.Conv2d(16, 5, 1)
        self.depth = nn.Conv2d(16, 1, 1)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Returns logits and depth."""
        features = self.backbone(image)
        return {"segmentation": self.segmentation(features), "depth": self.depth(features)}


def build_network() -> RoadNetwork:
    """Returns the same network each time."""
    torch.manual_seed(0)
    return RoadNetwork().eval()


@pytest.fixture
def network() -> RoadNetwork:
    return build_network()


@pytest.fixture
def pictures() -> Tensor:
    return torch.rand(24, *SIZE, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def loader(pictures: Tensor) -> DataLoader:
    return DataLoader(TensorDataset(pictures, torch.arange(24)), batch_size=8)


def test_the_page_runs_as_shown(network, loader, folder, capsys) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    known = {
        "network": network,
        "loader": loader,
        "held_out": loader,
        "build_network": build_network,
    }
    for block in code:
        exec(compile(block, str(PAGE), "exec"), known)
    assert Path("network.int8.onnx").is_file()
    assert capsys.readouterr().out.count(" dB on others") == 2
    pruned, again = known["pruned"], known["again"]
    sample = torch.rand(1, *SIZE)
    assert torch.equal(pruned.module(sample)["depth"], again(sample)["depth"])


def test_a_module_is_quantized_as_its_export(network, loader, pictures) -> None:
    model = framefit.export(network, loader)
    assert [item.name for item in model.graph.input] == ["input"]
    samples = [{"input": picture[None].numpy()} for picture in pictures]
    wanted = compress.quantize(model, samples, QuantizeSettings())
    found = framefit.quantize(network, loader, QuantizeSettings())
    assert found.model.SerializeToString() == wanted.model.SerializeToString()


def test_fewer_samples_can_be_asked_for(network, pictures) -> None:
    few = pick_evenly(pictures.numpy(), 5)
    found = framefit.quantize(network, pictures, samples=5)
    assert found.outputs_db == framefit.quantize(network, np.stack(few)).outputs_db


def test_files_go_with_files(network, pictures, folder) -> None:
    framefit.export(network, pictures, "network.onnx")
    np.savez("pictures.npz", input=pictures.numpy())
    found = framefit.quantize("network.onnx", "pictures.npz", samples=None)
    assert found.outputs_db == framefit.quantize(network, pictures, samples=None).outputs_db
    assert framefit.save(found.model, "network.int8.onnx") == Path("network.int8.onnx")
    figures = framefit.compare("network.onnx", Path("network.int8.onnx"), "pictures.npz")
    assert figures.keys() == {"segmentation", "depth"}
    assert all(20 < item["sqnr_db"] < 80 for item in figures.values())


def test_a_model_as_onnx_reads_it_is_checked_as_its_file_is(network, pictures, folder) -> None:
    """Of a free batch, unnamed nodes and another opset, as exporters of others leave them."""
    model = framefit.export(network, pictures)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    for item in (*model.graph.output, *model.graph.value_info):
        item.type.tensor_type.shape.dim[0].dim_param = "batch"
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, "free.onnx")
    before = model.SerializeToString()
    found = framefit.quantize(model, pictures)
    assert model.SerializeToString() == before
    assert found.outputs_db == framefit.quantize("free.onnx", pictures).outputs_db
    assert found.model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1


def test_a_module_needs_the_shapes_of_its_inputs(network) -> None:
    with pytest.raises(InputError, match=r"the path pictures; .* export it first"):
        framefit.quantize(network, "pictures")


def test_the_target_is_timed_unless_told_otherwise(network, loader) -> None:
    settings = QuantizeSettings(target="openvino")
    assert framefit.quantize(network, loader, settings).precision is not None
    assert framefit.quantize(network, loader, settings, is_timed=False).precision is None


def test_a_generator_compares_two_modules(network, pictures) -> None:
    other = build_network()
    with torch.no_grad():
        other.depth.bias += 0.25
    found = framefit.compare(network, other, (picture[None] for picture in pictures))
    assert found["segmentation"]["max_abs"] < 1e-5
    assert found["depth"]["max_abs"] == pytest.approx(0.25, rel=1e-3)


def count_weights(model: onnx.ModelProto) -> float:
    """Returns what stands for a latency: a machine that nothing disturbs."""
    return sum(onnx.numpy_helper.to_array(item).size for item in model.graph.initializer) / 1e3


@pytest.mark.parametrize(
    ("flag", "settings", "weights", "said"),
    [
        ("avx2", None, "int8-pairs", "QuantizeSettings() keeps all 8 bits"),
        ("avx2", QuantizeSettings(), "int8", "QuantizeSettings(weights='int8-pairs') keeps them"),
        ("avx_vnni", None, "int8", ""),
        ("avx_vnni", QuantizeSettings(), "int8", ""),
    ],
)
def test_without_settings_weights_fit_this_processor(
    flag, settings, weights, said, monkeypatch, caplog
) -> None:
    for module in ("framefit.api", "framefit.quantize_choices"):
        monkeypatch.setattr(f"{module}.read_flags", lambda: frozenset({"sse2", flag}))
    samples = [{"image": np.full((1, 3, 16, 24), value, np.float32)} for value in (0.2, 0.9)]
    found = framefit.quantize(make_network(), samples, settings)
    assert found.settings.weights == weights
    assert said in caplog.text
    assert ("no VNNI" in caplog.text) == bool(said)


def test_what_a_program_calls_is_listed() -> None:
    assert {"quantize", "prune", "distill", "compare", "QuantizeSettings"} <= set(dir(framefit))


class Bytes(nn.Module):
    """A network that takes pictures as a camera gives them, and the number of the camera."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cameras = nn.Embedding(4, 16)
        self.first, self.out = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 4, 1)

    def forward(self, picture: Tensor, camera: Tensor) -> Tensor:
        features = self.first(picture.permute(0, 3, 1, 2).float() / 255).relu()
        return self.out(features + self.cameras(camera)[..., None, None])


def test_integers_stay_integers() -> None:
    rng = np.random.default_rng(0)
    items = [
        (rng.integers(0, 256, (1, 32, 48, 3), np.uint8), np.array([index % 4]))
        for index in range(8)
    ]
    module = Bytes().eval()
    result = framefit.quantize(module, items, QuantizeSettings(target="openvino"), is_timed=False)
    types = [item.type.tensor_type.elem_type for item in result.model.graph.input]
    assert types == [onnx.TensorProto.UINT8, onnx.TensorProto.INT64]
    assert len(result.layers) == 2
    figures = framefit.compare(module, result.model, items)
    assert min(item["sqnr_db"] for item in figures.values()) > 30
    with pytest.raises(InputError, match="'camera' of the first item is a single number"):
        framefit.quantize(module, [(items[0][0], np.array(1))])


def test_a_module_that_chooses_boxes_is_refused_by_name(network, loader) -> None:
    ops = pytest.importorskip("torchvision.ops")

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, image: Tensor) -> Tensor:
            scores = self.network(image)["segmentation"].flatten(2)[0]
            boxes = torch.cat([scores[:2], scores[:2] + 1.0]).T
            return boxes[ops.nms(boxes, scores[4], 0.5)]

    with pytest.raises(InputError, match=r"the network answers boxes that 'nms' chose"):
        framefit.prune(Detector(), loader, PruneGoal(ratio=0.3))


def test_a_module_is_pruned_to_a_latency(network, loader, monkeypatch) -> None:
    monkeypatch.setattr(NetworkClock, "__call__", lambda _, models: [*map(count_weights, models)])
    monkeypatch.setattr(LayerTimes, "_time", lambda _, model: count_weights(model))
    settings = PruneSettings(limits=WidthLimits(round_to=1, fewest=1))
    found = framefit.prune(network, loader, PruneGoal(speed_up=1.5), settings)
    before_ms, after_ms = found.latency_ms
    assert before_ms / after_ms == pytest.approx(1.5, rel=0.06)
    assert after_ms == pytest.approx(count_weights(framefit.export(found.module, loader)))
    assert found.quality[0].keys() == {"segmentation", "depth"}
    sample = torch.rand(1, *SIZE)
    replayed = apply_edits(build_network(), found.edits).eval()
    assert replayed(sample)["depth"].shape == found.module(sample)["depth"].shape


def test_a_goal_out_of_range_is_refused_before_the_network_runs(loader) -> None:
    class Fails(nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            raise AssertionError("it ran")

    with pytest.raises(InputError, match=r"1\.5; expected above 0 and below 1"):
        framefit.prune(Fails(), loader, PruneGoal(ratio=1.5))


def test_a_student_learns_in_place(network, pictures) -> None:
    student = build_network()
    with torch.no_grad():
        student.depth.weight.mul_(0.2)
        student.segmentation.weight.mul_(0.2)
    before = student.depth.weight.clone()
    training = TrainerSettings(steps=40, learning_rate=1e-2)
    found = framefit.distill(student, network, pictures, DistillSettings(), training)
    assert found.module is student
    assert found.score_after < 0.9 * found.score_before
    assert not torch.equal(student.depth.weight, before)


def test_batches_may_name_the_argument_of_a_module(network, pictures) -> None:
    class Pictures(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(pictures)

        def __getitem__(self, index: int) -> dict[str, object]:
            return {"image": pictures[index], "label": index, "file": f"{index}.png"}

    named, plain = DataLoader(Pictures(), batch_size=8), DataLoader(pictures, batch_size=8)
    goal = PruneGoal(ratio=0.3)
    pruned = framefit.prune(network, named, goal)
    assert pruned.quality == framefit.prune(network, plain, goal).quality
    figures = framefit.compare(network, framefit.export(pruned.module, named), named)
    assert 0 < figures["depth"]["sqnr_db"] < 100


def test_compiled_modules_are_taken_as_they_were_before(network, pictures) -> None:
    compiled = torch.compile(network)
    pruned = framefit.prune(compiled, pictures, PruneGoal(ratio=0.3))
    assert type(pruned.module) is RoadNetwork
    assert framefit.export(compiled, pictures) == framefit.export(network, pictures)
    student, teacher = torch.compile(pruned.module), torch.compile(network.train())
    training = TrainerSettings(steps=2, batch_size=4)
    found = framefit.distill(student, teacher, pictures, DistillSettings(), training)
    assert found.module is pruned.module
    assert all(part.training for part in network.modules())


def test_a_network_in_float64_is_pruned_and_distilled_in_it(network, pictures) -> None:
    teacher = network.double()
    pruned = framefit.prune(teacher, pictures.double(), PruneGoal(ratio=0.3)).module
    training = TrainerSettings(steps=2, batch_size=4)
    found = framefit.distill(pruned, teacher, pictures.double(), DistillSettings(), training)
    assert [tap.student_channels for tap in found.taps] != [16]
    assert {value.dtype for value in pruned.parameters()} == {torch.float64}


def test_the_package_has_what_it_lists_and_no_more() -> None:
    assert all(getattr(framefit, name).__name__ == name for name in framefit.__all__)
    with pytest.raises(AttributeError, match="no attribute 'deploy'"):
        framefit.deploy  # noqa: B018


def test_an_extra_that_is_missing_is_named(monkeypatch) -> None:
    def find_nothing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named 'torch', wanted by {name}", name="torch")

    monkeypatch.setattr(framefit, "import_module", find_nothing)
    with pytest.raises(MissingExtraError, match=r"\.PruneSettings needs .*framefit\[torch\]"):
        framefit.PruneSettings  # noqa: B018


def test_an_onnx_model_of_several_inputs_is_quantized_by_name() -> None:
    class Fusion(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.near, self.far = nn.Conv2d(3, 8, 3), nn.Conv2d(1, 8, 3)

        def forward(self, camera: Tensor, radar: Tensor, scale: float = 1.0) -> Tensor:
            return scale * torch.relu(self.near(camera) + self.far(radar))

    torch.manual_seed(0)
    cameras, radars = torch.rand(6, 3, 16, 16), torch.rand(6, 1, 16, 16)
    named = [{"radar": radars[i, None], "camera": cameras[i, None], "id": i} for i in range(6)]
    module = Fusion().eval()
    found = framefit.quantize(module, named)
    assert [item.name for item in found.model.graph.input] == ["camera", "radar"]
    assert isinstance(found.model, onnx.ModelProto)
    paired = framefit.quantize(module, TensorDataset(cameras, radars))
    assert paired.model.SerializeToString() == found.model.SerializeToString()


def test_a_module_in_training_mode_is_looked_at_as_it_will_run(network, loader) -> None:
    wanted = framefit.prune(network, loader, PruneGoal(ratio=0.3))
    network.train()
    network.depth.eval()
    found = framefit.prune(network, loader, PruneGoal(ratio=0.3))
    assert found.edits == wanted.edits
    assert not found.module.training
    assert (network.training, network.depth.training) == (True, False)
