"""Trains the networks and writes what `benchmarks.peers --own` reads."""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from artifacts.atomic import atomic_path
from benchmarks.fresh_networks.networks import NETWORKS
from benchmarks.fresh_networks.scenes import read_calibration, read_held_out, render_training
from benchmarks.fresh_networks.training import export_trained, train

OUT = Path("out/fresh")
SCENES, TRAINING_SEED = 500, 71
STEPS = 500


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
        losses = train(network, pictures, targets, arguments.steps)
        _write(network, OUT / name)
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


def _write(network: nn.Module, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    export_trained(network, folder / "float.onnx")
    for file, pictures in (("calib", read_calibration()), ("held", read_held_out())):
        with atomic_path(folder / f"{file}.npz") as path, path.open("wb") as stream:
            np.savez(stream, image=pictures.numpy())


if __name__ == "__main__":
    main()
