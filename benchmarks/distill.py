"""Distillation without labels: how much quality comes back, per head.

`python -m benchmarks.distill [STUDENT.pt [STEPS]]` repairs a pruned (or otherwise changed) network
against the shipped one with rendered scenes whose labels are not used, and measures each head on
held-out scenes before and after. Without STUDENT the shipped network's weights are disturbed by a
tenth of their spread.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from artifacts.atomic import write_json
from artifacts.checkpoint import load_checkpoint, save_checkpoint
from compress.distill.settings import DistillSettings
from compress.train.settings import TrainerSettings
from framefit.distill_job import distill_file

OUT = Path("out/bench/distill")
TEACHER = Path("perception/checkpoints/road.pt")
NOISE = 0.1


def disturb() -> Path:
    """Writes the shipped network with disturbed convolutions; returns its path."""
    torch.manual_seed(0)
    checkpoint = load_checkpoint(TEACHER)
    weights = {
        name: value + NOISE * value.std() * torch.randn_like(value) if value.ndim == 4 else value
        for name, value in checkpoint.state_dict.items()
    }
    path = OUT / "disturbed.pt"
    save_checkpoint(path, replace(checkpoint, state_dict=weights))
    return path


def run(student: Path | None = None, steps: int = 60) -> dict[str, Any]:
    """Distils and measures; returns the figures."""
    OUT.mkdir(parents=True, exist_ok=True)
    training = TrainerSettings(
        steps=steps, batch_size=4, learning_rate=5e-4, probe_every=max(steps // 4, 1), workers=1
    )
    outcome = distill_file(
        student or disturb(),
        TEACHER,
        "scenes",
        DistillSettings(),
        training,
        out=OUT / "student.pt",
    )
    return outcome.to_dict()


if __name__ == "__main__":
    kinds = (Path, int)
    figures = run(*(kind(text) for kind, text in zip(kinds, sys.argv[1:], strict=False)))
    write_json(OUT / "figures.json", figures)
    print(json.dumps(figures, indent=1))
