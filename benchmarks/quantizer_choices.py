"""`python -m benchmarks.quantizer_choices`: repeats the experiments that decided the defaults."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import load_onnx
from benchmarks.altered_pictures import IN_TURN, survey_with
from benchmarks.gain_spread import GainSpread
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.real_networks import NETWORKS, REAL, open_pictures
from compress.compare import compare_models
from compress.quantize.decisions import Decisions
from compress.quantize.observers import ByOutputError, Entropy, MeanSquaredError, MinMax, Percentile
from compress.quantize.prepare import prepare_network
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.search.sensitivity import measure_layers
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass

Quality = list[tuple[float, float]]
"""SQNR of each output in dB: the mean over pictures, and all pictures pooled."""
PAGE = Path("docs/experiments.md")
RAW = Path("out/bench/quantizer_choices.json")
FLOAT_LAYERS = 8
RANDOM_SPLITS = 3
FIRST_SPLITS = ("U1", "U2", "U3", "F1", "F2", "F3")
COLUMNS = {
    "U1": ("U1",),
    "U2": ("U2",),
    "U3 to U5": ("U3", "U4", "U5"),
    "F1": ("F1",),
    "F2": ("F2",),
    "F3 to F5": ("F3", "F4", "F5"),
}
"""Columns of the table of choices: means over splits."""
SURVEYED: tuple[tuple[str, ...], ...] = (
    (),
    ("negatives",),
    ("contrast 1.6",),
    ("darker",),
    ("upside down",),
    ("brighter",),
    ("quarters, enlarged",),
    ("brighter", "quarters, enlarged"),
    (IN_TURN,),
)
"""Altered calibration pictures that ranges are chosen on beside the calibration pictures."""
CHOICES = {
    "the default": {},
    "without equalization": {"equalization": False},
    "without bias correction": {"bias_correction": False},
    "without input correction": {"input_correction": False},
    "least squared error, no headroom": {"observer": MeanSquaredError(headroom=1.0)},
    "headroom 1.2": {"observer": MeanSquaredError(headroom=1.2)},
    "minmax": {"observer": MinMax()},
    "percentile 99.99": {"observer": Percentile()},
    "entropy": {"observer": Entropy()},
    "gain spread 0.15": {"observer": GainSpread()},
    "gain spread 0.3": {"observer": GainSpread(sigma=0.3)},
    "auto (the best for the layer's output)": {"observer": ByOutputError()},
}


def main() -> None:
    """Measures both tables, writes the raw figures and the section of the page."""
    splits = open_splits()
    choices = {
        name: {split: judge(*splits[split], make_settings(**changes)) for split in splits}
        for name, changes in CHOICES.items()
    }
    choices |= {
        f"ranges on: {', '.join(names) or 'nothing else'}": {
            split: judge(*splits[split], make_settings(), names) for split in splits
        }
        for names in SURVEYED
    }
    guides = {split: compare_guides(*splits[split]) for split in FIRST_SPLITS}
    write_json(RAW, {"choices": choices, "guides": guides, "machine": describe_machine()})
    page = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(page, "choices", render(choices, guides)))
    print(json.dumps({"page": str(PAGE), "raw": str(RAW)}))


def make_settings(**changes: Any) -> QuantizeSettings:
    """Returns the settings of a choice."""
    return QuantizeSettings(target="openvino", **changes)


def open_splits() -> dict[str, tuple[Any, Any, Any]]:
    """Returns model, calibration and held-out pictures of each split.

    U1, U2: UltraFace, 8 of its 12 pictures calibrate and the other 4 are held out, two choices.
    F1: FastestDet, the 13 road pictures calibrate, its own 5 are held out. F2: 8 road pictures and
    3 of its own calibrate, 5 and 2 are held out. U3 to U5, F3 to F5: two of three pictures of each
    network, drawn at random, calibrate, and the others are held out.
    """
    models = {item.name: (item, load_onnx(REAL / item.model)) for item in NETWORKS}
    ultra, face = models["UltraFace RFB-320"]
    fastest, detector = models["FastestDet"]
    people = open_pictures(ultra, face, "ultraface/images/*.jpg", slice(None))
    roads = open_pictures(fastest, detector, "road/*.jpg", slice(None))
    own = open_pictures(fastest, detector, "fastestdet/images/*.jpg", slice(None))
    splits = {
        "U1": (face, people[:8], people[8:]),
        "U2": (face, people[4:], people[:4]),
        "F1": (detector, roads, own),
        "F2": (detector, [*roads[:8], *own[:3]], [*roads[8:], *own[3:]]),
    }
    for seed in range(RANDOM_SPLITS):
        splits[f"U{3 + seed}"] = (face, *_split_at_random(people, seed))
        splits[f"F{3 + seed}"] = (detector, *_split_at_random([*roads, *own], seed))
    return splits


def _split_at_random(pictures: Any, seed: int) -> tuple[list[Any], list[Any]]:
    order = np.random.default_rng(seed).permutation(len(pictures)).tolist()
    part = 2 * len(pictures) // 3
    return [pictures[place] for place in order[:part]], [pictures[place] for place in order[part:]]


def judge(
    model: Any,
    calibration: Any,
    held_out: Any,
    settings: QuantizeSettings,
    altered: tuple[str, ...] | None = None,
) -> Quality:
    """Returns the SQNR of each output on the held-out pictures, all INT8.

    `altered` names the altered calibration pictures that ranges are chosen on beside the
    calibration pictures; None leaves that to the quantizer.
    """
    prepared = prepare_network(model, calibration, settings)
    if altered is not None:
        survey_with(prepared, calibration, *altered)
    decisions = StreamingPass(prepared, settings).run(calibration)
    return _compare(model, prepared.write_model(decisions), held_out)


def _compare(model: Any, candidate: Any, samples: Any) -> Quality:
    outputs = compare_models(model, candidate, samples)["outputs"]
    return [(value["sqnr_mean_db"], value["sqnr_db"]) for value in outputs.values()]


def compare_guides(model: Any, calibration: Any, held_out: Any) -> dict[str, Any]:
    """Compares two guides to the layers that should stay in float.

    "alone" quantizes one layer at a time; "left out" leaves one layer out of the quantized network.
    Both are measured on the calibration pictures; the FLOAT_LAYERS worst layers of each stay in
    float, and the held-out pictures judge.
    """
    settings = QuantizeSettings(target="openvino")
    prepared = prepare_network(model, calibration, settings)
    decisions = StreamingPass(prepared, settings).run(calibration)
    (matrix,) = measure_layers(prepared, decisions, [calibration])
    whole = _noise(model, prepared, decisions, calibration, frozenset())
    left_out = np.array(
        [
            whole - _noise(model, prepared, decisions, calibration, frozenset({name}))
            for name in matrix.layers
        ]
    )
    scores = {"alone": matrix.noise, "left out": left_out}
    floats = {
        guide: judge(model, calibration, held_out, _keep(settings, matrix.layers, values, whole))
        for guide, values in scores.items()
    }
    return {
        "all INT8": judge(model, calibration, held_out, settings),
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
    return np.array([10 ** (-pooled / 10) for _, pooled in _compare(model, network, samples)])


def render(choices: dict[str, Any], guides: dict[str, Any]) -> list[str]:
    """Returns the lines of the page's section."""
    lines = [f"Measured in one run on {describe_machine()}, placement `openvino`.", ""]
    lines += table_lines(
        ("", *COLUMNS),
        (
            (
                name,
                *(
                    _db(np.mean([values[split] for split in group], axis=0).tolist())
                    for group in COLUMNS.values()
                ),
            )
            for name, values in choices.items()
        ),
    )
    splits = list(guides)
    lines += ["", f"Which {FLOAT_LAYERS} layers to keep in float:", ""]
    rows = {
        "all INT8": lambda item: _db(item["all INT8"]),
        "worst when quantized alone": lambda item: _db(item["float"]["alone"]),
        "worst when left out": lambda item: _db(item["float"]["left out"]),
        "sum of the rows over the noise, alone": lambda item: _ratio(item, "alone"),
        "the same, left out": lambda item: _ratio(item, "left out"),
    }
    return lines + table_lines(
        ("", *splits),
        ((name, *(show(guides[split]) for split in splits)) for name, show in rows.items()),
    )


def _db(values: Quality) -> str:
    return " / ".join(f"{mean:.1f} ({pooled:.1f})" for mean, pooled in values)


def _ratio(item: dict[str, Any], guide: str) -> str:
    return " / ".join(f"{value:.2f}" for value in item["sum over noise"][guide])


if __name__ == "__main__":
    main()
