"""`python -m benchmarks.unlike_pictures`: which altered pictures foretell errors on unseen ones.

Layers are ranked by the error that each causes alone, on the calibration pictures altered in some
way. The held-out pictures judge: how well do their own errors correlate, and how much SQNR is left
if the worst layers of the ranking stay in float.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.atomic import write_json, write_text
from artifacts.samples import pick_evenly
from benchmarks.altered_pictures import ALTERED, IN_TURN, Samples, survey_with
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section
from benchmarks.quantizer_choices import FIRST_SPLITS, open_splits
from compress.quantize.prepare import prepare_network
from compress.quantize.search.sensitivity import SensitivityMatrix, measure_layers, take_worse
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass

PAGE = Path("docs/experiments.md")
RAW = Path("out/bench/unlike_pictures.json")
SECTION = "unlike"
PICTURES = 8
FLOAT_LAYERS = 16
RANGES = {"the calibration pictures alone": (), "altered ones too (the default)": (IN_TURN,)}


def main() -> None:
    """Measures every split, writes the raw figures and the section of the page."""
    known = open_splits()
    splits = {name: known[name] for name in FIRST_SPLITS}
    figures = {
        what: {name: compare_pictures(*split, altered) for name, split in splits.items()}
        for what, altered in RANGES.items()
    }
    write_json(RAW, {"figures": figures, "machine": describe_machine()})
    page = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(page, SECTION, render(figures)))
    print(json.dumps({"page": str(PAGE), "raw": str(RAW)}))


def compare_pictures(
    model: Any, calibration: Samples, held_out: Samples, surveyed: tuple[str, ...]
) -> dict[str, Any]:
    """Returns, per way to alter pictures, {"correlation", "db"} on the held-out pictures."""
    settings = QuantizeSettings(target="openvino")
    prepared = prepare_network(model, calibration, settings)
    survey_with(prepared, calibration, *surveyed)
    decisions = StreamingPass(prepared, settings).run(calibration)
    plain = pick_evenly(calibration, PICTURES)
    sets = [held_out, *(alter(plain) for alter in ALTERED.values())]
    truth, *altered = measure_layers(prepared, decisions, sets)
    matrices = dict(zip(ALTERED, altered, strict=True))
    for name in ("negatives", "quarters, enlarged"):
        matrices[f"calibration and {name}, the worse"] = take_worse(
            matrices["the calibration pictures"], matrices[name]
        )
    matrices["the held-out pictures themselves"] = truth
    return {name: _judge(matrix, truth) for name, matrix in matrices.items()}


def _judge(guide: SensitivityMatrix, truth: SensitivityMatrix) -> dict[str, float]:
    logs = [np.log(item.shares() + 1e-9) for item in (guide, truth)]
    order = np.argsort(-guide.shares(), kind="stable")
    left = truth.head_noise()[order[FLOAT_LAYERS:]].sum(axis=0)
    return {
        "correlation": float(np.corrcoef(*logs)[0, 1]),
        "db": float(np.mean(-10 * np.log10(left))),
    }


def render(figures: dict[str, Any]) -> list[str]:
    """Returns the lines of the page's section."""
    lines = [
        f"Correlation of the layers' errors (logarithms) with those on the held-out pictures, and "
        f"the SQNR there, dB, predicted with the {FLOAT_LAYERS} worst layers in float. Measured in "
        f"one run on {describe_machine()}.",
    ]
    for what, table in figures.items():
        splits = list(table)
        lines += ["", f"Ranges chosen on {what}:", "", "| pictures | " + " | ".join(splits) + " |"]
        lines.append("|---" * (len(splits) + 1) + "|")
        names: Sequence[str] = list(table[splits[0]])
        for name in names:
            found = [table[split][name] for split in splits]
            cells = [f"{item['correlation']:.2f}, {item['db']:.1f}" for item in found]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    main()
