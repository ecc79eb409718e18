"""Pruning to half the latency, distillation, INT8: speed and every head, in one run.

`python -m benchmarks.prune_distill [STEPS]` prunes the shipped network to 50 % of its float latency
on OpenVINO, repairs it by distillation on rendered scenes without their labels, and quantizes it.
Latencies are measured in turns, figures on held-out scenes.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from artifacts.atomic import write_json
from benchmarks.qat import measure
from compress.distill.settings import DistillSettings
from compress.prune.settings import PruneSettings
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from compress.train.settings import TrainerSettings
from framefit.distill_job import distill_file
from framefit.model_source import open_model
from framefit.network_clock import NetworkClock
from framefit.prune_goal import PruneGoal
from framefit.prune_job import prune_file
from framefit.training_samples import SceneSamples
from perception.training_data import road_data

OUT = Path("out/bench/prune_distill")
NETWORK = Path("perception/checkpoints/road.pt")
SIZE = (320, 608)
SCENES = 60
CALIBRATION = 32
TIMINGS = 5
"""One reading of a share of the float latency can be off by 5 %; the median of these is taken."""


def run(steps: int = 250) -> dict[str, Any]:
    """Prunes, distils, quantizes and measures; returns the figures."""
    OUT.mkdir(parents=True, exist_ok=True)
    clock = NetworkClock("openvino")
    opened = open_model(NETWORK)
    pruned = OUT / "pruned.pt"
    prune_file(NETWORK, PruneGoal(speed_up=2.0), PruneSettings(), data="scenes", out=pruned)
    training = TrainerSettings(
        steps=steps, batch_size=4, learning_rate=1e-3, probe_every=max(steps // 4, 1), workers=1
    )
    student = OUT / "student.pt"
    outcome = distill_file(pruned, NETWORK, "scenes", DistillSettings(), training, out=student)
    models = {
        "float": opened.model,
        "pruned": open_model(pruned).model,
        "distilled": open_model(student).model,
    }
    models["int8"] = _quantize(models["distilled"], opened.spec)
    for name, model in models.items():
        onnx.save(model, OUT / f"{name}.onnx")
    rounds = np.array([clock(list(models.values())) for _ in range(TIMINGS)])
    shares = np.median(rounds / rounds[:, :1], axis=0)
    times = dict(zip(models, (shares * np.median(rounds[:, 0])).tolist(), strict=True))
    held_out = road_data(1, 1, SCENES).held_out(*SIZE)
    scenes = [held_out[index] for index in range(SCENES)]
    return {
        "steps": steps,
        "ms": times,
        "pruned_share": times["pruned"] / times["float"],
        "speed_up": times["float"] / times["int8"],
        "heads": {name: measure(model, scenes, opened.spec) for name, model in models.items()},
        "distillation": outcome.to_dict()["losses"],
    }


def _quantize(model: onnx.ModelProto, spec: Any) -> onnx.ModelProto:
    samples = SceneSamples(road_data(4000, 11, 1).training(*SIZE), (), spec)
    name = model.graph.input[0].name
    feeds = [{name: samples[index]["image"][None]} for index in range(CALIBRATION)]
    return quantize_model(model, feeds, QuantizeSettings(target="openvino")).model


if __name__ == "__main__":
    figures = run(*map(int, sys.argv[1:]))
    write_json(OUT / "figures.json", figures)
    print(json.dumps(figures, indent=1))
