"""Stages whose channels are shuffled between blocks: any channels may leave, in equal numbers."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchvision.models import shufflenet_v2_x0_5

from artifacts.edits import apply_edits
from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from compress.prune.adapt import open_network
from compress.prune.api import PruneResult, PruneSettings, RatioGoal, prune_module
from compress.prune.importance.activation import score_by_activation
from compress.prune.importance.contract import ImportanceData
from compress.prune.prunable_network import PrunableNetwork
from compress.prune.select import WidthLimits
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from export.to_onnx import export_onnx

IMAGE = (torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)),)


class Block(nn.Module):
    """A block of FastestDet: channels take turns, every other one passes by."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        mid = outputs // 2
        self.main = nn.Sequential(
            *(nn.Conv2d(inputs, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU()),
            *(nn.Conv2d(mid, mid, 3, stride, 1, groups=mid), nn.BatchNorm2d(mid)),
            *(nn.Conv2d(mid, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU()),
        )
        self.projection = None
        if stride > 1:
            self.projection = nn.Sequential(
                *(nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs), nn.BatchNorm2d(inputs)),
                *(nn.Conv2d(inputs, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU()),
            )

    def forward(self, x: Tensor) -> Tensor:
        if self.projection is not None:
            return torch.cat([self.projection(x), self.main(x)], 1)
        b, c, h, w = x.size()
        assert c % 4 == 0
        x = x.reshape(b * c // 2, 2, h * w).permute(1, 0, 2).reshape(2, -1, c // 2, h, w)
        return torch.cat([x[0], self.main(x[1])], 1)


class Detector(nn.Module):
    """A trunk of such blocks; features of two stages are joined, as FastestDet does."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 3, 2, 1)
        self.near = nn.Sequential(Block(24, 48, 2), *(Block(24, 48, 1) for _ in range(3)))
        self.far = nn.Sequential(Block(48, 96, 2), *(Block(48, 96, 1) for _ in range(7)))
        self.fuse = nn.Conv2d(144, 32, 1)
        self.boxes, self.classes = nn.Conv2d(32, 4, 1), nn.Conv2d(32, 3, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        near = self.near(self.stem(x))
        far = self.far(near)
        x = self.fuse(torch.cat([nn.functional.avg_pool2d(near, 2), far], 1)).relu()
        return {"boxes": self.boxes(x), "classes": self.classes(x)}


def disturb(network: nn.Module) -> nn.Module:
    """Gives BatchNorm statistics that matter."""
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            part.weight.data.uniform_(0.5, 2)
    return network.eval()


@pytest.fixture(scope="module")
def opened() -> PrunableNetwork:
    torch.manual_seed(0)
    return open_network(disturb(Detector()), IMAGE)


@pytest.fixture(scope="module", params=[pytest.param(0.3, marks=pytest.mark.slow), 0.5])
def pruned(request) -> tuple[nn.Module, PruneResult]:
    torch.manual_seed(0)
    network = disturb(Detector())
    settings = PruneSettings(importance="magnitude")
    return network, prune_module(network, IMAGE, RatioGoal(request.param), settings)


def test_a_stage_of_eight_blocks_has_fine_widths(opened: PrunableNetwork) -> None:
    stages = {one.name: one for one in opened.channels.families if one.stage is not None}
    assert stages["near.0.main.5.weight"].count == 24
    assert stages["far.0.main.5.weight"].count == 48
    assert len(stages["far.0.main.5.weight"].stage.layouts) > 5
    assert not any("tied together" in left.reason for left in opened.channels.left_alone)


def test_every_width_equals_the_zeroed_original(opened: PrunableNetwork) -> None:
    scores = np.random.default_rng(0).random(len(opened.channels.roots))
    for family in opened.channels.families:
        for kept in family.stage.layouts if family.stage is not None else ():
            assert opened.largest_difference(family.leave(kept, scores)) < 1e-9


def test_an_importance_that_is_high_keeps_a_channel(opened: PrunableNetwork) -> None:
    family = next(one for one in opened.channels.families if one.name == "far.0.main.5.weight")
    scores = np.zeros(len(opened.channels.roots))
    for kind in family.stage.kinds:
        scores[kind[0]] = 1.0
    gone = family.leave(16, scores)
    counts = family.stage.layouts[16].counts
    assert (
        not {kind[0] for kind, count in zip(family.stage.kinds, counts, strict=True) if count}
        & gone
    )


def test_groups_that_are_no_narrower_stage_are_refused(opened: PrunableNetwork) -> None:
    family = next(one for one in opened.channels.families if one.stage is not None)
    with pytest.raises(ValueError, match="leave no stage that is known"):
        opened.make_edits({family.roots[0]})


def test_every_layer_of_a_stage_is_weighed_by_its_activations(opened: PrunableNetwork) -> None:
    data = ImportanceData(images=[IMAGE])
    scores = score_by_activation(opened.module, opened.channels, data)
    for family in opened.channels.families:
        if family.stage is not None:
            assert (scores[np.array(family.roots)] > 0).all()


def test_a_share_of_the_channels_leaves_exactly(pruned) -> None:
    _, result = pruned
    assert max(result.differences) < 1e-9
    widths = {width.weight: width for width in result.widths}
    assert any(
        widths[name].after < widths[name].before
        for name in ("near.0.main.5.weight", "far.0.main.5.weight")
    )


def test_edits_of_a_stage_replay_and_export_without_a_gather(pruned, tmp_path) -> None:
    network, result = pruned
    again = apply_edits(disturb(Detector()), result.edits)
    again.load_state_dict(result.module.state_dict())
    with torch.no_grad():
        wanted, found = result.module(*IMAGE), again(*IMAGE)
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    shape = tuple(IMAGE[0].shape)
    model = load_onnx(export_onnx(again, tmp_path / "narrow.onnx", input_shape=shape))
    whole = load_onnx(export_onnx(network, tmp_path / "whole.onnx", input_shape=shape))
    kinds = [Counter(node.op_type for node in one.graph.node) for one in (model, whole)]
    assert kinds[0] == kinds[1]
    sample = {"input": IMAGE[0].numpy()}
    quantize_model(model, [sample, sample], QuantizeSettings())


@pytest.mark.slow
def test_torchvision_loses_half_of_its_channels() -> None:
    torch.manual_seed(0)
    network = disturb(shufflenet_v2_x0_5(weights=None))
    settings = PruneSettings(importance="magnitude", limits=WidthLimits(round_to=4))
    result = prune_module(network, IMAGE, RatioGoal(0.5), settings)
    assert max(result.differences) < 1e-9
    assert [left.weight for left in result.left_alone] == ["fc.weight"]
    before, after = (
        sum(value.numel() for value in one.parameters()) for one in (network, result.module)
    )
    assert after < 0.6 * before


def test_an_index_twice_is_refused() -> None:
    edit = {"kind": "keep", "tensor": "weight", "axis": 0, "indices": [1, 0, 1]}
    with pytest.raises(InputError, match="must differ"):
        apply_edits(nn.Linear(2, 3), [edit])
    edit["indices"] = [2, 0]
    layer = nn.Linear(2, 3)
    wanted = layer.weight.detach()[[2, 0]]
    assert torch.equal(apply_edits(layer, [edit]).weight, wanted)
