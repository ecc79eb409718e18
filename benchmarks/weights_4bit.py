"""What INT4 weights cost, and how much of it rounding wins back: the table of docs/rounding.md.

Run `python -m benchmarks.weights_4bit`; with names of networks (demo, ultraface, fastestdet) only
those. The activations are INT8 throughout, so the networks are W4A8.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from artifacts.atomic import write_json
from artifacts.input_spec import InputSpec
from artifacts.onnx_file import load_onnx, save_onnx
from artifacts.onnx_metadata import HEADS_KEY, INPUT_SPEC_KEY, read_metadata
from benchmarks.real_networks import NETWORKS, REAL, open_pictures
from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.graph import Array
from compress.quantize.rounding import GPTQ, Nearest
from compress.quantize.settings import QuantizeSettings
from engines.runtimes import open_session
from export.network_file import export_network_file
from framefit.demo import CALIBRATION_SEED, CHECKPOINT, HELD_OUT_SEED
from perception.evaluate import evaluate_outputs
from perception.scene.dataset import SceneDataset

RAW = Path("out/bench/weights_4bit.json")
CALIBRATION_PICTURES, JUDGED_PICTURES, LABELLED_SCENES = 16, 8, 100
Samples = Sequence[dict[str, Array]]
Judge = Callable[[onnx.ModelProto], dict[str, float]]

ALL_INT4 = QuantizeSettings(weights="int4", int4_share=1)
VARIANTS = {
    "W8A8": QuantizeSettings(),
    "W4A8 nearest": replace(
        ALL_INT4, rounding=Nearest(), equalization=False, input_correction=False
    ),
    "W4A8 nearest, repaired": replace(ALL_INT4, rounding=Nearest()),
    "W4A8 GPTQ, repaired": replace(ALL_INT4, rounding=GPTQ()),
    "W4A8 auto, repaired": ALL_INT4,
    "W4A8 auto, repaired, groups of 64": replace(ALL_INT4, weight_group=64),
    "as shipped: 15 % of the weights in INT8": QuantizeSettings(weights="int4"),
    "as shipped, nearest": QuantizeSettings(weights="int4", rounding=Nearest()),
}


def measure_weights_4bit(names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Returns one row per network and variant: SQNR, task metrics, seconds and bytes."""
    rows: list[dict[str, Any]] = []
    if not names or "demo" in names:
        rows += _measure("demo", *_open_demo())
    for network in NETWORKS:
        name = Path(network.model).parent.name
        if REAL.is_dir() and (not names or name in names):
            model = load_onnx(REAL / network.model)
            parts = (network.calibration, network.held_out)
            calibration, held_out = (open_pictures(network, model, *part) for part in parts)
            rows += _measure(name, model, calibration, held_out, lambda candidate: {})
    return rows


def _open_demo() -> tuple[onnx.ModelProto, Samples, Samples, Judge]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "road.onnx")
        export_network_file(CHECKPOINT, path)
        model = load_onnx(path)
    metadata = read_metadata(model)
    spec = InputSpec.from_json(metadata[INPUT_SPEC_KEY])
    item = model.graph.input[0]
    height, width = (dim.dim_value for dim in item.type.tensor_type.shape.dim[2:])
    calibration, held_out = (
        [
            {item.name: spec.prepare(scene.image, height, width)[None]}
            for scene in SceneDataset(count, seed)
        ]
        for count, seed in (
            (CALIBRATION_PICTURES, CALIBRATION_SEED),
            (JUDGED_PICTURES, HELD_OUT_SEED),
        )
    )

    def judge(candidate: onnx.ModelProto) -> dict[str, float]:
        scenes = SceneDataset(LABELLED_SCENES, HELD_OUT_SEED, height, width)
        with tempfile.TemporaryDirectory() as folder:
            path = save_onnx(candidate, Path(folder, "candidate.onnx"), metadata={})
            with open_session(path, "openvino") as session:
                heads = evaluate_outputs(
                    lambda tensor: session.run({item.name: tensor}),
                    scenes,
                    spec,
                    json.loads(metadata[HEADS_KEY]),
                    size=(height, width),
                )
        return {f"{name} {head['metric']}": head["value"] for name, head in heads.items()}

    return model, calibration, held_out, judge


def _measure(
    name: str, model: onnx.ModelProto, calibration: Samples, held_out: Samples, judge: Judge
) -> list[dict[str, Any]]:
    rows = [{"network": name, "variant": "float", "sqnr_db": {}, "metrics": judge(model)}]
    for variant, settings in VARIANTS.items():
        start = time.process_time()
        result = quantize_model(model, calibration, settings)
        seconds = time.process_time() - start
        outputs = compare_models(model, result.model, held_out)["outputs"]
        rows.append(
            {
                "network": name,
                "variant": variant,
                "sqnr_db": {key: value["sqnr_db"] for key, value in outputs.items()},
                "metrics": judge(result.model),
                "cpu_s": seconds,
                "bytes": result.model.ByteSize(),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def recovered(row: dict[str, Any], nearest: dict[str, Any], reference: dict[str, Any]) -> str:
    """Returns what part of the loss of nearest rounding is won back, in noise and in decibels.

    Both are means over the outputs; the reference is W8A8, whose activations are the same.
    """
    shares: list[tuple[float, float]] = []
    for key, db in row["sqnr_db"].items():
        lost_db = reference["sqnr_db"][key] - nearest["sqnr_db"][key]
        noise = [10 ** (-item["sqnr_db"][key] / 10) for item in (row, nearest, reference)]
        shares.append(
            (
                (noise[1] - noise[0]) / (noise[1] - noise[2]),
                (db - nearest["sqnr_db"][key]) / lost_db,
            )
        )
    of_noise, of_db = np.mean(shares, axis=0)
    return f"{of_noise:.0%} | {of_db:.0%}"


def render(rows: list[dict[str, Any]]) -> str:
    """Returns the rows as Markdown tables, one per network."""
    lines = []
    for name in dict.fromkeys(row["network"] for row in rows):
        own = {row["variant"]: row for row in rows if row["network"] == name}
        lines += [
            f"### {name}",
            "",
            "| variant | SQNR dB | noise recovered | dB recovered | task metrics | CPU s | MB |",
            "|---|---|---|---|---|---|---|",
        ]
        for variant, row in own.items():
            metrics = ", ".join(f"{key} {value:.4f}" for key, value in row["metrics"].items())
            if not row["sqnr_db"]:
                lines.append(f"| {variant} | | | | {metrics or '-'} | | |")
                continue
            share = recovered(row, own["W4A8 nearest"], own["W8A8"])
            share = share if variant not in ("W8A8", "W4A8 nearest") else "- | -"
            lines.append(
                f"| {variant} | {np.mean(list(row['sqnr_db'].values())):.1f} | {share} | "
                f"{metrics or '-'} | {row['cpu_s']:.0f} | {row['bytes'] / 1e6:.2f} |"
            )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Measures the networks named on the command line, or all; prints the tables."""
    rows = measure_weights_4bit(sys.argv[1:])
    write_json(RAW, rows)
    print(render(rows))


if __name__ == "__main__":
    main()
