"""W4A8 by quantization-aware training: how much comes back of what PTQ lost, per head.

`python -m benchmarks.qat` takes the demo network as `compress quantize --weights int4` leaves it,
with INT8 weights in the costliest layers (`--int4-share 1`: in none; `--weights int8`: in all).
Figures are measured on held-out scenes, also those of rounding to the nearest integer without any
repair and of INT8 weights: what the same activations leave to win.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from artifacts.atomic import write_json
from compress.compare import compare_models
from compress.model_runner import open_runner
from compress.qat.api import train_quantized
from compress.qat.settings import QatSettings
from compress.quantize.api import quantize_model
from compress.quantize.rounding import ROUNDINGS, Nearest
from compress.quantize.settings import QuantizeSettings
from compress.train.settings import TrainerSettings
from framefit.model_source import open_model
from framefit.training_samples import SceneSamples
from perception.evaluate import evaluate_heads
from perception.training_data import road_data

OUT = Path("out/bench/qat")
NETWORK = Path("perception/checkpoints/road.pt")
SIZE = (320, 608)
CALIBRATION, TAUGHT, PROBED = 16, 800, 16
PROBES = 8
SCENES, JUDGED = 60, 16


def measure(model: onnx.ModelProto, scenes: Any, spec: Any) -> dict[str, dict[str, float]]:
    """Returns all figures of each head."""
    heads = json.loads(next(p.value for p in model.metadata_props if p.key == "framefit.heads"))
    runner = open_runner(model)
    name = model.graph.input[0].name
    return evaluate_heads(lambda image: runner({name: image}), scenes, spec, heads)


def judge_outputs(
    float_model: onnx.ModelProto, model: onnx.ModelProto, feeds: list[dict[str, Any]]
) -> dict[str, float]:
    """Returns the SQNR of each output in dB, over all feeds."""
    outputs = compare_models(float_model, model, feeds)["outputs"]
    return {name: round(value["sqnr_db"], 2) for name, value in outputs.items()}


def recovered(
    before: dict[str, float], after: dict[str, float], floor: dict[str, float] | None = None
) -> dict[str, float]:
    """Returns which part of each output's noise power is gone.

    Args:
        before: dB of each output.
        after: the same.
        floor: dB beyond which nothing is to be had; None for all noise.
    """
    parts = {}
    for name in before:
        noise = [10 ** (-one[name] / 10) for one in (before, after)]
        least = 10 ** (-floor[name] / 10) if floor else 0.0
        parts[name] = round((noise[0] - noise[1]) / (noise[0] - least), 3)
    return parts


def besides(settings: QuantizeSettings) -> dict[str, QuantizeSettings]:
    """Returns what a file is held against: no method at all, and INT8 weights."""
    return {
        "nearest": replace(
            settings, rounding=Nearest(), equalization=False, input_correction=False
        ),
        "W8A8": replace(settings, weights="int8", int4_share=None),
    }


def run(settings: QuantizeSettings, steps: int, rate: float) -> dict[str, Any]:
    """Quantizes, trains and measures; returns the figures."""
    opened = open_model(NETWORK)
    spec = opened.spec
    data = road_data(4000, 11, SCENES)
    scenes = SceneSamples(data.training(*SIZE), (), spec)
    name = opened.model.graph.input[0].name
    feeds = [{name: scenes[index]["image"][None]} for index in range(CALIBRATION)]
    start = time.monotonic()
    ptq = quantize_model(opened.model, feeds, settings).model
    quantized_s = time.monotonic() - start
    start = time.monotonic()
    training = TrainerSettings(
        steps=steps,
        batch_size=2,
        learning_rate=rate,
        weight_decay=0.0,
        average_decay=0.98,
        probe_every=max(steps // PROBES, 1),
    )
    result = train_quantized(
        ptq,
        opened.model,
        [scenes[index] for index in range(CALIBRATION, CALIBRATION + TAUGHT)],
        [scenes[len(scenes) - 1 - index] for index in range(PROBED)],
        QatSettings(),
        training,
    )
    trained_s = time.monotonic() - start
    models = {"ptq": ptq, "qat": result.model} | {
        label: quantize_model(opened.model, feeds, other).model
        for label, other in besides(settings).items()
    }
    held_out = data.held_out(*SIZE)
    whole = [held_out[index] for index in range(SCENES)]
    pictures = SceneSamples(held_out, (), spec)
    judged = [{name: pictures[index]["image"][None]} for index in range(JUDGED)]
    sqnr_db = {label: judge_outputs(opened.model, model, judged) for label, model in models.items()}
    OUT.mkdir(parents=True, exist_ok=True)
    for label, model in models.items():
        onnx.save(model, OUT / f"{label}.onnx")
    return {
        "steps": steps,
        "weights": settings.weights,
        "int4_share": settings.int4_share,
        "quantize_s": quantized_s,
        "train_s": trained_s,
        "scores": result.training.scores,
        "sqnr_db": sqnr_db,
        "recovered_of_nearest": recovered(sqnr_db["nearest"], sqnr_db["qat"]),
        "recovered_of_ptq": recovered(sqnr_db["ptq"], sqnr_db["qat"]),
        "recovered_of_the_weights": None
        if settings.weights == "int8"
        else recovered(sqnr_db["ptq"], sqnr_db["qat"], sqnr_db["W8A8"]),
        "heads": {
            label: measure(model, whole, spec)
            for label, model in ({"float": opened.model} | models).items()
        },
    }


def main() -> None:
    """Measures what the options ask for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.qat")
    parser.add_argument("--steps", type=int, default=2000, help="of two whole scenes")
    parser.add_argument("--rate", type=float, default=0.005)
    parser.add_argument("--target", default="tensorrt")
    parser.add_argument("--rounding", choices=sorted(ROUNDINGS), default="auto")
    parser.add_argument("--weights", choices=("int4", "int8"), default="int4")
    parser.add_argument("--int4-share", type=float, help="at least; the command's where left out")
    arguments = parser.parse_args()
    settings = QuantizeSettings(
        weights=arguments.weights,
        int4_share=arguments.int4_share,
        target=arguments.target,
        rounding=ROUNDINGS[arguments.rounding](),
    )
    figures = run(settings, arguments.steps, arguments.rate)
    write_json(OUT / "figures.json", figures)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
