"""`python -m benchmarks.quantizer_choices`: repeats the experiments that decided the defaults."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import load_onnx
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section
from benchmarks.real_networks import NETWORKS, REAL, open_pictures
from compress.compare import compare_models
from compress.quantize.decisions import Decisions
from compress.quantize.observers import ByOutputError, Entropy, MeanSquaredError, MinMax, Percentile
from compress.quantize.prepared import PreparedNetwork, prepare_network
from compress.quantize.search.sensitivity import measure_layers
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass

PAGE = Path("docs/quantization.md")
RAW = Path("out/bench/quantizer_choices.json")
FLOAT_LAYERS = 8
CHOICES = {
    "the default": {},
    "ranges on negatives too (--prefer quality)": {"prefer": "quality"},
    "without equalization": {"equalization": False},
    "without bias correction": {"bias_correction": False},
    "least squared error, no headroom": {"observer": MeanSquaredError(headroom=1.0)},
    "headroom 1.2": {"observer": MeanSquaredError(headroom=1.2)},
    "minmax": {"observer": MinMax()},
    "percentile 99.99": {"observer": Percentile()},
    "entropy": {"observer": Entropy()},
    "auto (the best for the layer's output)": {"observer": ByOutputError()},
}


def main() -> None:
    """Measures both tables, writes the raw figures and the section of the page."""
    splits = open_splits()
    choices = {
        name: {
            split: _judge(*splits[split], QuantizeSettings(target="openvino", **changes))
            for split in splits
        }
        for name, changes in CHOICES.items()
    }
    guides = {split: compare_guides(*splits[split]) for split in splits}
    write_json(RAW, {"choices": choices, "guides": guides, "machine": describe_machine()})
    page = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(page, "choices", render(choices, guides)))
    print(json.dumps({"page": str(PAGE), "raw": str(RAW)}))


def open_splits() -> dict[str, tuple[Any, Any, Any]]:
    """Returns model, calibration and held-out pictures of each split.

    U1, U2: UltraFace, 8 of its 12 pictures calibrate and the other 4 are held out, two choices.
    F1: FastestDet, the 13 road pictures calibrate, its own 5 are held out. F2: 8 road pictures and
    3 of its own calibrate, 5 and 2 are held out.
    """
    models = {item.name: (item, load_onnx(REAL / item.model)) for item in NETWORKS}
    ultra, face = models["UltraFace RFB-320"]
    fastest, detector = models["FastestDet"]
    people = open_pictures(ultra, face, "ultraface/images/*.jpg", slice(None))
    roads = open_pictures(fastest, detector, "road/*.jpg", slice(None))
    own = open_pictures(fastest, detector, "fastestdet/images/*.jpg", slice(None))
    return {
        "U1": (face, people[:8], people[8:]),
        "U2": (face, people[4:], people[:4]),
        "F1": (detector, roads, own),
        "F2": (detector, [*roads[:8], *own[:3]], [*roads[8:], *own[3:]]),
    }


def _judge(model: Any, calibration: Any, held_out: Any, settings: QuantizeSettings) -> list[float]:
    """Returns the pooled SQNR of each output on the held-out pictures, all INT8."""
    prepared = prepare_network(model, calibration, settings)
    decisions = StreamingPass(prepared, settings).run(calibration)
    return _compare(model, prepared.write_model(decisions), held_out)


def _compare(model: Any, candidate: Any, samples: Any) -> list[float]:
    outputs = compare_models(model, candidate, samples)["outputs"]
    return [value["sqnr_db"] for value in outputs.values()]


def compare_guides(model: Any, calibration: Any, held_out: Any) -> dict[str, Any]:
    """Compares two guides to the layers that should stay in float.

    "alone" quantizes one layer at a time; "left out" leaves one layer out of the quantized network.
    Both are measured on the calibration pictures; the FLOAT_LAYERS worst layers of each stay in
    float, and the held-out pictures judge.
    """
    settings = QuantizeSettings(target="openvino")
    prepared = prepare_network(model, calibration, settings)
    decisions = StreamingPass(prepared, settings).run(calibration)
    matrix = measure_layers(prepared, decisions, calibration)
    whole = _noise(model, prepared, decisions, calibration, frozenset())
    left_out = np.array(
        [
            whole - _noise(model, prepared, decisions, calibration, frozenset({name}))
            for name in matrix.layers
        ]
    )
    scores = {"alone": matrix.noise, "left out": left_out}
    floats = {
        guide: _judge(model, calibration, held_out, _keep(settings, matrix.layers, values, whole))
        for guide, values in scores.items()
    }
    return {
        "all INT8": _judge(model, calibration, held_out, settings),
        "float": floats,
        "sum over noise": {
            guide: (values.sum(axis=0) / whole).tolist() for guide, values in scores.items()
        },
    }


def _keep(
    settings: QuantizeSettings,
    layers: tuple[str, ...],
    scores: NDArray[np.float64],
    whole: NDArray[np.float64],
) -> QuantizeSettings:
    order = np.argsort(-(scores / whole).mean(axis=1), kind="stable")[:FLOAT_LAYERS]
    return replace(settings, keep_float=tuple(layers[place] for place in order))


def _noise(
    model: Any,
    prepared: PreparedNetwork,
    decisions: Decisions,
    samples: Any,
    without: frozenset[str],
) -> NDArray[np.float64]:
    """Returns each output's relative noise with all layers quantized but some."""
    kept = [item for item in prepared.quantized if item.node not in without]
    network = replace(prepared, quantized=tuple(kept)).write_model(decisions)
    return np.array([10 ** (-db / 10) for db in _compare(model, network, samples)])


def render(choices: dict[str, Any], guides: dict[str, Any]) -> list[str]:
    """Returns the lines of the page's section."""
    splits = list(guides)
    head = ["| " + " | ".join(["", *splits]) + " |", "|---" * (len(splits) + 1) + "|"]
    lines = [f"Measured in one run on {describe_machine()}, placement `openvino`.", "", *head]
    for name, values in choices.items():
        lines.append(f"| {name} | " + " | ".join(_db(values[split]) for split in splits) + " |")
    lines += ["", f"Which {FLOAT_LAYERS} layers to keep in float:", "", *head]
    rows = {
        "all INT8": lambda item: _db(item["all INT8"]),
        "worst when quantized alone": lambda item: _db(item["float"]["alone"]),
        "worst when left out": lambda item: _db(item["float"]["left out"]),
        "sum of the rows over the noise, alone": lambda item: _ratio(item, "alone"),
        "the same, left out": lambda item: _ratio(item, "left out"),
    }
    for name, show in rows.items():
        lines.append(f"| {name} | " + " | ".join(show(guides[split]) for split in splits) + " |")
    return lines


def _db(values: list[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def _ratio(item: dict[str, Any], guide: str) -> str:
    return " / ".join(f"{value:.2f}" for value in item["sum over noise"][guide])


if __name__ == "__main__":
    main()
