"""W4A8 by QAT on the networks of `benchmarks.fresh_networks`: what comes back of what PTQ lost.

Run that first; then `python -m benchmarks.qat_fresh [NAMES] [--steps 500] [--rate 0.005]`. All
weights are INT4 and all activations INT8, as TensorRT's placement has them. Training sees other
rendered roads than the held-out ones; no labels take part. Each output is judged on `held.npz`.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.atomic import write_json
from artifacts.onnx_file import load_onnx
from benchmarks.fresh_networks.__main__ import OUT as FRESH
from benchmarks.fresh_networks.__main__ import SCENES, TRAINING_SEED
from benchmarks.fresh_networks.networks import NETWORKS
from benchmarks.fresh_networks.scenes import render_training
from benchmarks.peers.cases import read_feeds
from benchmarks.qat import besides, judge_outputs, recovered
from compress.distill.lesson import IMAGE
from compress.qat.api import train_quantized
from compress.qat.settings import QatSettings
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from compress.train.settings import TrainerSettings

RAW = Path("out/bench/qat_fresh.json")
PTQ = QuantizeSettings(weights="int4", int4_share=1, target="tensorrt")
OTHERS = besides(PTQ)
PROBES, HELD_OUT, BATCH = 4, 16, 8


def measure(name: str, samples: list[dict[str, Any]], steps: int, rate: float) -> dict[str, Any]:
    """Returns the SQNR of each output after PTQ and QAT, and how much noise came back."""
    folder = FRESH / name
    float_model = load_onnx(folder / "float.onnx")
    calibration, held_out = read_feeds(folder / "calib.npz"), read_feeds(folder / "held.npz")
    start = time.monotonic()
    models = {"PTQ": quantize_model(float_model, calibration, PTQ).model}
    quantized_s = time.monotonic() - start
    training = TrainerSettings(
        steps=steps,
        batch_size=BATCH,
        learning_rate=rate,
        weight_decay=0.0,
        average_decay=0.98,
        probe_every=max(steps // PROBES, 1),
    )
    start = time.monotonic()
    result = train_quantized(
        models["PTQ"],
        float_model,
        samples[HELD_OUT:],
        samples[:HELD_OUT],
        QatSettings(),
        training,
    )
    trained_s = time.monotonic() - start
    models["QAT"] = result.model
    for label, settings in OTHERS.items():
        models[label] = quantize_model(float_model, calibration, settings).model
    sqnr_db = {
        label: judge_outputs(float_model, model, held_out) for label, model in models.items()
    }
    return {
        "network": name,
        "steps": steps,
        "sqnr_db": sqnr_db,
        "recovered_of_ptq": recovered(sqnr_db["PTQ"], sqnr_db["QAT"]),
        "recovered_of_nearest": recovered(sqnr_db["nearest"], sqnr_db["QAT"]),
        "quantize_s": round(quantized_s, 1),
        "train_s": round(trained_s, 1),
        "scores": result.training.scores,
    }


def render(rows: list[dict[str, Any]]) -> str:
    """Returns a Markdown table of means over each network's outputs."""
    lines = [
        "| network | nearest | PTQ | QAT | W8A8 | back of nearest's noise | of PTQ's | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        means = {label: np.mean(list(values.values())) for label, values in row["sqnr_db"].items()}
        lines.append(
            f"| {row['network']} | "
            + " | ".join(f"{means[label]:.1f}" for label in ("nearest", "PTQ", "QAT", "W8A8"))
            + f" | {_mean_percent(row['recovered_of_nearest'])}"
            + f" | {_mean_percent(row['recovered_of_ptq'])} | {row['train_s']:.0f} |"
        )
    return "\n".join(lines)


def _mean_percent(shares: dict[str, float]) -> str:
    values = list(shares.values())
    return f"{np.mean(values):.0%} ({min(values):.0%} to {max(values):.0%})"


def main() -> None:
    """Measures those asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.qat_fresh")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NETWORKS)}; all without names")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0.005)
    arguments = parser.parse_args()
    names = arguments.names or [name for name in NETWORKS if (FRESH / name).is_dir()]
    if not names:
        parser.error("there is nothing in out/fresh: python -m benchmarks.fresh_networks first")
    pictures, _ = render_training(SCENES, TRAINING_SEED)
    samples = [{IMAGE: picture.numpy()} for picture in pictures]
    rows = []
    for name in names:
        rows.append(measure(name, samples, arguments.steps, arguments.rate))
        print(json.dumps(rows[-1]), flush=True)
    write_json(RAW, rows)
    print(render(rows))


if __name__ == "__main__":
    main()
