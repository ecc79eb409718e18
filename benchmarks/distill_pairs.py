"""Students and their teachers of unlike kinds, on which settings of a distillation are compared.

Teachers are trained here on rendered roads, in a minute or so each, and their weights are kept. The
students were cut by magnitude, had operators replaced, or know nothing.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.crop_classifier import (
    CLASSES,
    SIZE,
    Crops,
    build_classifier,
    render_crops,
    train_classifier,
)
from benchmarks.fresh_networks.losses import classes_loss, depth_loss
from benchmarks.fresh_networks.scenes import Targets, render_training
from benchmarks.fresh_networks.training import train
from benchmarks.kept_weights import train_once
from compress.prune.api import RatioGoal, prune_module
from compress.prune.settings import PruneSettings
from compress.train.batches import Sample
from framefit.demo import CHECKPOINT
from framefit.model_source import ModelOptions
from framefit.trainable_network import open_trainable
from framefit.training_samples import IMAGE, SceneSamples
from perception.scene.sample import MASK_CLASSES
from perception.training_data import road_data

TEACHER_STEPS = 400
SCENES, TRAINING_SEED = 300, 91
ROAD_HW, ROAD_SCENES, ROAD_SEED = (128, 256), 160, 92
HELD_OUT = 16


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A student that is to answer as its teacher does.

    Attributes:
        student: a copy of its own for each training.
        teacher: trained.
        training: samples to learn from.
        held_out: samples for the probe.
        batch_size: of the training.
    """

    student: nn.Module
    teacher: nn.Module
    training: Sequence[Sample]
    held_out: Sequence[Sample]
    batch_size: int


class TwoHeads(nn.Module):
    """A backbone of timm with classes of pixels and depth."""

    def __init__(self, backbone: str) -> None:
        super().__init__()
        import timm

        self.trunk = timm.create_model(
            backbone, pretrained=False, features_only=True, out_indices=(1, 3)
        )
        fine, coarse = self.trunk.feature_info.channels()
        self.lateral = nn.Conv2d(fine, 48, 1)
        self.down = nn.Conv2d(coarse, 48, 1)
        self.classes = nn.Conv2d(48, len(MASK_CLASSES), 3, padding=1)
        self.depth = nn.Conv2d(48, 1, 3, padding=1)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Returns classes [N, C, H, W] and metres [N, 1, H, W] of pictures [N, 3, H, W]."""
        fine, coarse = self.trunk((image - 0.45) / 0.225)
        enlarged = F.interpolate(self.down(coarse), size=fine.shape[2:], mode="bilinear")
        joined = F.relu(self.lateral(fine) + enlarged)
        size = image.shape[2:]
        return {
            "classes": F.interpolate(self.classes(joined), size=size, mode="bilinear"),
            "depth": F.softplus(F.interpolate(self.depth(joined), size=size, mode="bilinear")),
        }

    @staticmethod
    def lesson(outputs: dict[str, Tensor], targets: Targets) -> Tensor:
        """Returns the loss."""
        return classes_loss(outputs["classes"], targets) + depth_loss(outputs["depth"], targets)


def open_pairs(folder: Path) -> dict[str, Callable[[], Pair]]:
    """Returns what makes each pair; trained teachers are kept in the folder."""
    two_heads = partial(_cut_two_heads, folder)
    return {
        "road, 8 % cut": partial(_cut_road, 0.08),
        "road, 30 % cut": partial(_cut_road, 0.3),
        "road, 60 % cut": partial(_cut_road, 0.6),
        "RegNetX with two heads, 5 % cut": partial(two_heads, 0.05),
        "RegNetX with two heads, 50 % cut": partial(two_heads, 0.5),
        "RegNetX with two heads, from nothing": partial(_untrained_two_heads, folder),
        "crops, 10 % cut": partial(_cut_crops, folder, 0.1),
        "crops, 60 % cut": partial(_cut_crops, folder, 0.6),
        "crops, from nothing": partial(_untrained_crops, folder),
        "ViT on crops, 10 % cut": partial(_cut_attention, folder, 0.1),
        "ViT on crops, 50 % cut": partial(_cut_attention, folder, 0.5),
        "EfficientNet with two heads, SiLU as ReLU": partial(_without_silu, folder),
    }


def _cut(module: nn.Module, share: float, shape: Sequence[int]) -> nn.Module:
    example = torch.rand(tuple(shape), generator=torch.Generator().manual_seed(0))
    cut = prune_module(module, (example,), RatioGoal(share), PruneSettings(importance="magnitude"))
    return cut.module.requires_grad_(True)


@cache
def _road() -> tuple[nn.Module, list[Sample]]:
    opened = open_trainable(CHECKPOINT, ModelOptions(), {})
    scenes = road_data(ROAD_SCENES + HELD_OUT, ROAD_SEED, 1).training(*ROAD_HW)
    samples = SceneSamples(scenes, (), opened.spec)
    return opened.module, [samples[index] for index in range(len(samples))]


def _cut_road(share: float) -> Pair:
    teacher, samples = _road()
    return Pair(
        student=_cut(teacher, share, (1, 3, *ROAD_HW)),
        teacher=teacher,
        training=samples[HELD_OUT:],
        held_out=samples[:HELD_OUT],
        batch_size=4,
    )


@cache
def _scenes() -> tuple[Tensor, Targets]:
    return render_training(SCENES, TRAINING_SEED)


def _train_two_heads(folder: Path, backbone: str) -> nn.Module:
    torch.manual_seed(0)
    network = TwoHeads(backbone)
    path = folder / f"{backbone}.pt"
    return train_once(network, path, lambda learner: train(learner, *_scenes(), TEACHER_STEPS))


def _pair_two_heads(teacher: nn.Module, student: nn.Module) -> Pair:
    samples = [{IMAGE: picture.numpy()} for picture in _scenes()[0]]
    return Pair(
        student=student,
        teacher=teacher,
        training=samples[HELD_OUT:],
        held_out=samples[:HELD_OUT],
        batch_size=4,
    )


def _cut_two_heads(folder: Path, share: float) -> Pair:
    teacher = _train_two_heads(folder, "regnetx_002")
    return _pair_two_heads(teacher, _cut(teacher, share, (1, 3, *_scenes()[0].shape[2:])))


def _untrained_two_heads(folder: Path) -> Pair:
    teacher = _train_two_heads(folder, "regnetx_002")
    torch.manual_seed(1)
    return _pair_two_heads(teacher, TwoHeads("regnetx_002").eval())


def _without_silu(folder: Path) -> Pair:
    teacher = _train_two_heads(folder, "efficientnet_b0")
    student = deepcopy(teacher)
    for part in list(student.modules()):
        for name, child in part.named_children():
            if isinstance(child, nn.SiLU):
                setattr(part, name, nn.ReLU())
    return _pair_two_heads(teacher, student)


@cache
def _crops() -> Crops:
    return render_crops()


def _pair_crops(teacher: nn.Module, student: nn.Module) -> Pair:
    training, probe = (
        [{IMAGE: sample[IMAGE]} for sample in part] for part in (_crops().training, _crops().probe)
    )
    return Pair(student=student, teacher=teacher, training=training, held_out=probe, batch_size=16)


def _cut_crops(folder: Path, share: float) -> Pair:
    teacher = train_classifier(_crops(), folder / "crops.pt")
    return _pair_crops(teacher, _cut(teacher, share, (1, 3, SIZE, SIZE)))


def _untrained_crops(folder: Path) -> Pair:
    teacher = train_classifier(_crops(), folder / "crops.pt")
    return _pair_crops(teacher, build_classifier())


def _build_attention() -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    network: nn.Module = VisionTransformer(
        img_size=SIZE, patch_size=6, embed_dim=96, depth=4, num_heads=4, num_classes=CLASSES
    )
    return network


def _cut_attention(folder: Path, share: float) -> Pair:
    path = folder / "attention.pt"
    teacher = train_classifier(_crops(), path, network=_build_attention())
    return _pair_crops(teacher, _cut(teacher, share, (1, 3, SIZE, SIZE)))
