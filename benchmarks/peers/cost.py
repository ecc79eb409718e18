"""What quantizing costs, in seconds and memory: networks of several sizes, pictures of noise."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from artifacts.atomic import atomic_path
from artifacts.onnx_file import load_onnx, save_onnx
from artifacts.onnx_inputs import input_tensors
from benchmarks.peers.cases import CaseFiles
from benchmarks.peers.makers import list_ours, list_peers, make


@dataclass(frozen=True, kw_only=True)
class CostCase:
    """A network whose files are not judged.

    Attributes:
        name: of its folder and its figures.
        title: of its table.
        what: the network, in words.
        pictures: that calibrate.
        size: their height and width.
        build: returns it.
    """

    name: str
    title: str
    what: str
    pictures: int
    size: tuple[int, int] = (512, 512)
    build: Callable[[], nn.Module]


def _build_resnet() -> nn.Module:
    import timm

    network: nn.Module = timm.create_model(
        "resnet18", pretrained=False, num_classes=10, zero_init_last=False
    )
    return network


class _Segmentation(nn.Module):
    """A network of torchvision with one output, its BatchNorms settled on noise."""

    def __init__(self, name: str) -> None:
        from torchvision.models import segmentation

        super().__init__()
        build = getattr(segmentation, name)
        self.network = build(weights=None, weights_backbone=None, num_classes=12)
        with torch.no_grad():
            self.network.train()(torch.rand(2, 3, 128, 128))

    def forward(self, image: Tensor) -> Tensor:
        """Returns the logits of 12 classes."""
        logits: Tensor = self.network(image)["out"]
        return logits


COST_CASES = (
    CostCase(name="cost", title="Cost", what="resnet18 of timm", pictures=64, build=_build_resnet),
    CostCase(
        name="cost-large",
        title="Cost of a large network",
        what="DeepLabV3 of torchvision on a dilated ResNet-50 (40 million weights)",
        pictures=32,
        build=partial(_Segmentation, "deeplabv3_resnet50"),
    ),
    CostCase(
        name="cost-hd",
        title="Cost of large pictures",
        what="LR-ASPP of torchvision on MobileNetV3",
        pictures=12,
        size=(1088, 1920),
        build=partial(_Segmentation, "lraspp_mobilenet_v3_large"),
    ),
)


def measure_cost(case: CostCase, out: Path) -> dict[str, Any]:
    """Lets each tool quantize with its own defaults, one after the other.

    Returns:
        {"what", "files": {tool: what `make` returns}}.
    """
    files = CaseFiles(out / case.name)
    files.folder.mkdir(parents=True, exist_ok=True)
    _write(case, files)
    rows = {}
    for maker in (*list_peers(), *list_ours()):
        if maker.is_costed:
            print(f"{case.name}: {maker.name}", flush=True)
            rows[maker.name] = make(maker, files, case.pictures)
    what = f"{case.what} on {case.pictures} pictures of {case.size[0]}x{case.size[1]}"
    return {"what": what, "files": rows}


def _write(case: CostCase, files: CaseFiles) -> None:
    torch.manual_seed(0)
    network = case.build().eval()
    with atomic_path(files.model) as path:
        torch.onnx.export(
            network,
            (torch.zeros(1, 3, *case.size),),
            str(path),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    save_onnx(load_onnx(files.model), files.model, metadata={})
    name = next(iter(input_tensors(load_onnx(files.model))))
    pictures = np.random.default_rng(0).random((case.pictures, 3, *case.size), np.float32)
    np.savez(files.calibration, **{name: pictures})
