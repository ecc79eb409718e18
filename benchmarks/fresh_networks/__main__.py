"""Trains the networks and writes what `benchmarks.peers --own` reads."""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from artifacts.atomic import atomic_path
from benchmarks.fresh_networks.networks import NETWORKS
from benchmarks.fresh_networks.scenes import (
    HEIGHT,
    WIDTH,
    Targets,
    read_calibration,
    read_held_out,
    render_training,
)

OUT = Path("out/fresh")
SCENES, TRAINING_SEED = 500, 71
STEPS, BATCH = 500, 8
RATE, WARM_UP, LARGEST_GRADIENT = 1.5e-3, 30, 5.0
DARKEST, BRIGHTEST, NOISE = 0.6, 1.4, 0.02


def main() -> None:
    """Trains those asked for, or all; a line of JSON each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fresh_networks")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NETWORKS)}; all without names")
    parser.add_argument("--steps", type=int, default=STEPS, help="of training, each network")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - NETWORKS.keys())
    if unknown:
        parser.error(f"there is no network '{unknown[0]}': {', '.join(NETWORKS)}")
    pictures, targets = render_training(SCENES, TRAINING_SEED)
    for number, name in enumerate(NETWORKS):
        if arguments.names and name not in arguments.names:
            continue
        torch.manual_seed(number)
        network = NETWORKS[name]()
        start = time.monotonic()
        losses = _train(network, pictures, targets, arguments.steps)
        _write(network.eval(), OUT / name)
        tenth = max(1, len(losses) // 10)
        print(
            json.dumps(
                {
                    "network": name,
                    "loss": [
                        round(float(np.mean(part)), 3) for part in (losses[:tenth], losses[-tenth:])
                    ],
                    "seconds": round(time.monotonic() - start, 1),
                }
            ),
            flush=True,
        )


def _train(network: nn.Module, pictures: Tensor, targets: Targets, steps: int) -> list[float]:
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


def _write(network: nn.Module, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sample = torch.zeros(1, 3, HEIGHT, WIDTH)
    with torch.no_grad():
        names = list(network(sample))
    with atomic_path(folder / "float.onnx") as path:
        torch.onnx.export(
            network,
            (sample,),
            str(path),
            input_names=["image"],
            output_names=names,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    for file, pictures in (("calib", read_calibration()), ("held", read_held_out())):
        with atomic_path(folder / f"{file}.npz") as path, path.open("wb") as stream:
            np.savez(stream, image=pictures.numpy())


if __name__ == "__main__":
    main()
