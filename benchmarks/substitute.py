"""EfficientNet-B4: what operator substitution brings on OpenVINO, and what it costs.

`python -m benchmarks.substitute times` times the backbone at 256x512 in float, in INT8, and in INT8
after substitution, in turns. `python -m benchmarks.substitute quality [TRAIN_MINUTES STEPS]` trains
a small segmentation network on that backbone, substitutes, repairs it by distillation and measures
the mIoU before and after.
"""

import json
import sys
from pathlib import Path
from typing import Any

import onnx
import timm
import torch
from torch import nn

from artifacts.atomic import write_json
from compress.distill.settings import DistillSettings
from compress.substitute.api import choose_substitutions
from compress.train.settings import TrainerSettings
from framefit.module_clock import ModuleClock
from framefit.network_clock import NetworkClock
from framefit.substitute_job import substitute_file
from framefit.training_samples import IMAGE
from perception.train_checkpoint import train_checkpoint
from perception.train_settings import TrainSettings
from perception.training_data import road_data

OUT = Path("out/bench/substitute")
NAME = "efficientnet_b4"
SHAPE = (1, 3, 256, 512)
SMALL = {"height": 128, "width": 256}


class Named(nn.Module):
    """A backbone whose features have names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone = timm.create_model(NAME, pretrained=False, features_only=True)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the features, [N, C, H, W] each."""
        return {f"stage_{index}": value for index, value in enumerate(self.backbone(x))}


def measure_times() -> dict[str, Any]:
    """Returns latencies in ms, all measured in turns, and the ratios that the goals speak of."""
    import numpy as np

    module = Named().eval()
    rng = np.random.default_rng(0)
    samples = [{"image": rng.random(SHAPE[1:], np.float32)} for _ in range(2)]
    in_float, in_int8 = (
        ModuleClock({IMAGE: SHAPE}, chosen, "openvino") for chosen in ((), samples)
    )
    chosen = choose_substitutions(module, in_int8)
    models: dict[str, onnx.ModelProto] = {
        "float": in_float.export(module),
        "int8": in_int8.export(module),
        "substituted int8": in_int8.export(chosen.module),
    }
    times = dict(zip(models, NetworkClock("openvino")(list(models.values())), strict=True))
    fastest = times["substituted int8"]
    return {
        "trials": [vars(trial) for trial in chosen.trials],
        "ms": times,
        "over_float": times["float"] / fastest,
        "over_int8": times["int8"] / fastest,
    }


def measure_quality(minutes: float = 3.0, steps: int = 60) -> dict[str, Any]:
    """Trains, substitutes and repairs; returns the mIoU of each."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "b4.pt"
    config = {"backbone": NAME, "heads": {"segmentation": {}}, **SMALL}
    settings = TrainSettings(minutes=minutes, half_share=0.0, replicas=2)
    train_checkpoint(path, config, settings, road_data(20_000, 1, 32))
    training = TrainerSettings(steps=steps, probe_every=max(steps // 3, 1), learning_rate=2e-3)
    outcome = substitute_file(
        path, "scenes", DistillSettings(), training, out=OUT / "b4.substituted.pt"
    )
    return outcome.to_dict()


if __name__ == "__main__":
    what, *numbers = sys.argv[1:] or ["times"]
    kinds = (float, int)
    figures = (
        measure_times()
        if what == "times"
        else measure_quality(*(kind(text) for kind, text in zip(kinds, numbers, strict=False)))
    )
    write_json(OUT / f"{what}.json", figures)
    print(json.dumps(figures, indent=1))
