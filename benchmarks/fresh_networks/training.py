"""Teaches a network on rendered roads, and exports it."""

from pathlib import Path

import torch
from torch import Tensor, nn

from artifacts.atomic import atomic_path
from benchmarks.fresh_networks.scenes import HEIGHT, WIDTH, Targets

BATCH = 8
RATE, WARM_UP, LARGEST_GRADIENT = 1.5e-3, 30, 5.0
DARKEST, BRIGHTEST, NOISE = 0.6, 1.4, 0.02


def train(network: nn.Module, pictures: Tensor, targets: Targets, steps: int) -> list[float]:
    """Trains a network; returns the loss of each step."""
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=steps, pct_start=min(0.3, WARM_UP / steps)
    )
    network.train()
    losses = []
    for _ in range(steps):
        chosen = torch.randint(len(pictures), (BATCH,))
        light = DARKEST + (BRIGHTEST - DARKEST) * torch.rand(BATCH, 1, 1, 1)
        batch = pictures[chosen] * light
        batch = (batch + NOISE * torch.randn_like(batch)).clamp(0, 1)
        loss = network.lesson(network(batch), targets.take(chosen))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), LARGEST_GRADIENT)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return losses


def export_trained(
    network: nn.Module, path: Path, height: int = HEIGHT, width: int = WIDTH
) -> None:
    """Writes a network whose outputs are a dictionary as ONNX, its input called `image`."""
    network = network.eval()
    sample = torch.zeros(1, 3, height, width)
    with torch.no_grad():
        names = list(network(sample))
    with atomic_path(path) as target:
        torch.onnx.export(
            network,
            (sample,),
            str(target),
            input_names=["image"],
            output_names=names,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
