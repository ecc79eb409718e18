"""Distillation at learning rates set by hand, and at the one that it finds.

    OMP_NUM_THREADS=1 python -m benchmarks.distill_rates [--steps 80] [--pair road ...]

Each pair of `benchmarks.distill_pairs` is trained from the same start with each rate, without
labels, with the same samples and seed. The figure is the probe's score of the network that is kept:
the mean over the heads of the loss on held-out pictures, as a share of that before; lower is
better. Teachers are trained where the folder lacks them, in a few minutes altogether.
"""

import argparse
import json
import time
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from artifacts.atomic import write_json
from benchmarks.distill_pairs import Pair, open_pairs
from compress.distill.api import distill_module
from compress.train.settings import TrainerSettings

OUT = Path("out/bench/distill_rates.json")
WEIGHTS = OUT.with_suffix("")
RATES = (1e-4, 3e-4, 1e-3, 3e-3)
PROBES = 4


def train_at(pair: Pair, rate: float | None, steps: int, seed: int) -> dict[str, Any]:
    """Returns the figures of one training; without a rate, one is found."""
    began = time.process_time()
    settings = TrainerSettings(
        steps=steps,
        batch_size=pair.batch_size,
        learning_rate=rate,
        probe_every=max(steps // PROBES, 1),
        threads=1,
        seed=seed,
    )
    result = distill_module(
        deepcopy(pair.student),
        deepcopy(pair.teacher),
        pair.training,
        pair.held_out,
        training=settings,
    )
    return {
        "before": result.score_before,
        "after": result.score_after,
        "rate": result.rate.to_dict(),
        "seconds": round(time.process_time() - began, 1),
    }


def render(figures: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Returns a table, the last figure of each line being that of the rate that was found."""
    columns = ["", *(f"{rate:g}" for rate in RATES), "found", "rate"]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for name, row in figures.items():
        best = min(figure["after"] for figure in row[:-1])
        cells = [_mark(figure["after"], best) for figure in row]
        lines.append(f"| {name} | {' | '.join(cells)} | {row[-1]['rate']['rate']:g} |")
    return lines


def _mark(value: float, best: float) -> str:
    return f"**{value:.3f}**" if value <= best else f"{value:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, and writes and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distill_rates")
    parser.add_argument("--steps", type=int, default=80, help="of each training")
    parser.add_argument("--seed", type=int, default=0, help="of each training")
    parser.add_argument("--pair", nargs="*", default=[""], help="words of the pairs' names")
    parser.add_argument("--out", type=Path, default=OUT, help="file of the figures")
    chosen = parser.parse_args(arguments)
    figures: dict[str, list[dict[str, Any]]] = {}
    for name, open_pair in open_pairs(WEIGHTS).items():
        if not any(word in name for word in chosen.pair):
            continue
        pair = open_pair()
        rates = (*RATES, None)
        figures[name] = [train_at(pair, rate, chosen.steps, chosen.seed) for rate in rates]
        print(name, json.dumps(figures[name][-1]), flush=True)
        write_json(chosen.out, figures)
    print("\n".join(render(figures)))


if __name__ == "__main__":
    main()
