"""The trained networks on which pruners are compared, with all that pruning and repairing need."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from benchmarks.crop_classifier import (
    ARCHITECTURE,
    CLASSES,
    LABEL,
    SIZE,
    label_loss,
    render_crops,
    train_classifier,
)
from benchmarks.qat import measure as measure_road
from compress.distill.api import distill_module
from compress.model_runner import open_runner
from compress.prune.analysis.api import find_channels
from compress.prune.api import LatencyGoal, PruneData, PruneResult, PruneSettings, prune_module
from compress.prune.importance import ImportanceData
from compress.train.batches import stack_samples
from compress.train.settings import TrainerSettings
from framefit.demo import CHECKPOINT
from framefit.exported_clock import ExportedClock
from framefit.exported_module import Exporter, export_module
from framefit.layer_timing import LayerTimes
from framefit.model_source import ModelOptions
from framefit.prune_samples import open_prune_data
from framefit.trainable_network import open_trainable
from framefit.training_samples import IMAGE, SCENE_SEED, SCENES, SceneSamples
from perception.evaluate import HEADLINES
from perception.training_data import road_data

LAYERS = Path("out/bench/layers")
"""The measured tables of single layers."""
SAMPLES = 32
ROAD_SCENES, ROAD_PROBE, PROBE_SEED = 100, 8, 31


@dataclass(frozen=True, kw_only=True)
class PruneCase:
    """A trained network.

    Attributes:
        name: short.
        what: the network, its task and its samples, for the page.
        module: the network.
        shape: of its input.
        data: samples with losses for the importance, the same for all.
        training: samples to repair with.
        probe: samples on which the best weights are chosen.
        batch_size: of the repair.
        learning_rate: of the repair.
        measure: figures of a network on samples that nothing else has seen.
        lower_is_better: names of the figures for which that is so.
    """

    name: str
    what: str
    module: nn.Module
    shape: tuple[int, ...]
    data: PruneData
    training: Sequence[Mapping[str, Any]]
    probe: Sequence[Mapping[str, Any]]
    batch_size: int
    learning_rate: float
    measure: Callable[[onnx.ModelProto], dict[str, float]]
    lower_is_better: tuple[str, ...] = ()

    @property
    def example(self) -> Tensor:
        """An input at random, the same each time."""
        return torch.rand(self.shape, generator=torch.Generator().manual_seed(0))

    def export(self, module: nn.Module) -> onnx.ModelProto:
        """Returns a network as the model that is timed and measured."""
        return export_module(module, {"input": self.shape})


def open_road(_folder: Path) -> PruneCase:
    """The shipped network with three heads."""
    opened = open_trainable(CHECKPOINT, ModelOptions(), {})
    module, spec = opened.module, opened.spec
    (shape,) = opened.shapes.values()
    size = (int(shape[2]), int(shape[3]))
    scenes = list(road_data(1, 1, ROAD_SCENES).held_out(*size))

    def measure(model: onnx.ModelProto) -> dict[str, float]:
        heads = measure_road(model, scenes, spec)
        return {
            f"{head} {HEADLINES[head]}": figures[HEADLINES[head]] for head, figures in heads.items()
        }

    training = road_data(20_000, SCENE_SEED, 1).training(*size)
    probe = SceneSamples(road_data(ROAD_PROBE, PROBE_SEED, 1).training(*size), (), spec)
    return PruneCase(
        name="road",
        what=f"the shipped network ({size[0]}x{size[1]}, three heads), {ROAD_SCENES} held-out "
        "rendered scenes",
        module=module,
        shape=tuple(shape),
        data=open_prune_data(
            module, {"input": tuple(shape)}, spec, SCENES, SAMPLES, is_spec_assumed=False
        ),
        training=SceneSamples(training, (), spec),
        probe=[probe[index] for index in range(ROAD_PROBE)],
        batch_size=4,
        learning_rate=1e-3,
        measure=measure,
        lower_is_better=("depth abs_rel",),
    )


def open_crops(folder: Path) -> PruneCase:
    """The classifier of `benchmarks.crop_classifier`, trained where `folder` does not have it."""
    crops = render_crops()
    module = train_classifier(crops, folder / "crops.pt", _tell)
    shape = (1, 3, SIZE, SIZE)
    chosen = [stack_samples([sample]) for sample in crops.training[:: len(crops.training) // 100]]
    images = [(batch[IMAGE],) for batch in chosen]

    def losses(network: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"class": label_loss(network(batch[IMAGE]), batch[LABEL])}

    def measure(model: onnx.ModelProto) -> dict[str, float]:
        runner = open_runner(model)
        (name,) = (item.name for item in model.graph.input)
        right = 0
        for sample in crops.held_out:
            (logits,) = runner({name: sample[IMAGE][None]}).values()
            right += int(logits.argmax()) == int(sample[LABEL])
        return {"accuracy": right / len(crops.held_out)}

    return PruneCase(
        name="crops",
        what=f"{ARCHITECTURE} of timm ({SIZE}x{SIZE}, {CLASSES} classes: car, truck and "
        "pedestrian, each near, in between and far), trained here on crops of rendered scenes; "
        f"{len(crops.held_out)} held-out crops",
        module=module,
        shape=shape,
        data=PruneData(
            importance=ImportanceData(chosen, losses, images),
            calibration=images,
            held_out=[(stack_samples([sample])[IMAGE],) for sample in crops.probe[:SAMPLES]],
        ),
        training=[{IMAGE: sample[IMAGE]} for sample in crops.training],
        probe=[{IMAGE: sample[IMAGE]} for sample in crops.probe],
        batch_size=32,
        learning_rate=1e-3,
        measure=measure,
    )


CASES: dict[str, Callable[[Path], PruneCase]] = {"road": open_road, "crops": open_crops}


def repair(case: PruneCase, module: nn.Module, steps: int) -> dict[str, float]:
    """Distils a network in place; returns the losses that are left, against the original."""
    torch.manual_seed(0)
    training = TrainerSettings(
        steps=steps,
        batch_size=case.batch_size,
        learning_rate=case.learning_rate,
        probe_every=max(steps // 2, 1),
        workers=1,
    )
    module.requires_grad_(True)
    result = distill_module(
        module, deepcopy(case.module), case.training, case.probe, training=training
    )
    return result.losses_after


def prune_to_speed(case: PruneCase, speed_up: float, export: Exporter) -> PruneResult:
    """Prunes a network until it is so many times as fast, in the form in which it is exported."""
    inputs = (case.example,)
    times = LayerTimes(export.runtime, LAYERS, is_int8=bool(export.samples))
    trace = find_channels(case.module, inputs).trace
    times.build(trace.layers, tell_tenths)
    clock = ExportedClock(case.module, export)
    goal = LatencyGoal(speed_up=speed_up, measure=clock, layer_time=times)
    return prune_module(case.module, inputs, goal, PruneSettings(), case.data, tell_tenths)


def tell_tenths(what: str, done: int, total: int) -> None:
    """Prints progress, ten times at most."""
    if done % max(total // 10, 1) == 0:
        print(f"  {what} {done}/{total}", flush=True)


def _tell(what: str, done: int, total: int) -> None:
    if done % 100 == 0:
        print(f"  {what} {done}/{total}", flush=True)
