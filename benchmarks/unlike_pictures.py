"""`python -m benchmarks.unlike_pictures`: which altered pictures foretell errors on unseen ones.

Layers are ranked by the error that each causes alone, on the calibration pictures altered in some
way. The held-out pictures judge: how well do their own errors correlate, and how much SQNR is left
if the worst layers of the ranking stay in float.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from artifacts.atomic import write_json, write_text
from artifacts.samples import spread_indices
from artifacts.synthetic_pictures import draw_pictures
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section
from benchmarks.quantizer_choices import open_splits
from compress.quantize.prepared import prepare_network
from compress.quantize.search.sensitivity import SensitivityMatrix, measure_layers, take_worse
from compress.quantize.search.stress import make_negatives
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass

PAGE = Path("docs/quantization.md")
RAW = Path("out/bench/unlike_pictures.json")
SECTION = "unlike"
PICTURES = 8
FLOAT_LAYERS = 16

Picture = NDArray[np.float32]
Samples = list[dict[str, Picture]]


def main() -> None:
    """Measures every split, writes the raw figures and the section of the page."""
    figures = {name: compare_pictures(*split) for name, split in open_splits().items()}
    write_json(RAW, {"figures": figures, "machine": describe_machine()})
    page = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(page, SECTION, render(figures)))
    print(json.dumps({"page": str(PAGE), "raw": str(RAW)}))


def compare_pictures(model: Any, calibration: Samples, held_out: Samples) -> dict[str, Any]:
    """Returns, per way to alter pictures, {"correlation", "db"} on the held-out pictures."""
    settings = QuantizeSettings(target="openvino")
    prepared = prepare_network(model, calibration, settings)
    decisions = StreamingPass(prepared, settings).run(calibration)
    truth = measure_layers(prepared, decisions, held_out)
    plain = [calibration[index] for index in spread_indices(len(calibration), PICTURES)]
    matrices = {
        name: measure_layers(prepared, decisions, alter(plain)) for name, alter in ALTERED.items()
    }
    matrices["calibration and negatives, the worse"] = take_worse(
        matrices["the calibration pictures"], matrices["negatives"]
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


def _each(change: Callable[[Picture, int, Samples], Picture]) -> Callable[[Samples], Samples]:
    """Returns a function that changes the picture of each sample, within the pictures' range."""

    def alter(samples: Samples) -> Samples:
        (name,) = samples[0]
        low = min(float(sample[name].min()) for sample in samples)
        high = max(float(sample[name].max()) for sample in samples)
        return [
            {name: np.clip(change(sample[name], place, samples), low, high).astype(np.float32)}
            for place, sample in enumerate(samples)
        ]

    return alter


def _contrast(picture: Picture, place: int, samples: Samples) -> Picture:
    return (picture - picture.mean()) * 1.6 + picture.mean()


def _brighter(picture: Picture, place: int, samples: Samples) -> Picture:
    return picture + 0.3 * (picture.max() - picture.min())


def _darker(picture: Picture, place: int, samples: Samples) -> Picture:
    return picture.min() + 0.4 * (picture - picture.min())


def _zoomed(picture: Picture, place: int, samples: Samples) -> Picture:
    height, width = picture.shape[2:]
    top, left = (height // 2) * (place % 2), (width // 2) * (place // 2 % 2)
    part = picture[0, :, top : top + height // 2, left : left + width // 2]
    return np.stack([cv2.resize(plane, (width, height)) for plane in part])[None]


def _mixed(picture: Picture, place: int, samples: Samples) -> Picture:
    (other,) = samples[(place + 3) % len(samples)].values()
    return (picture + other) / 2


def _synthetic(picture: Picture, place: int, samples: Samples) -> Picture:
    drawn = draw_pictures(picture.shape, np.random.default_rng(place))
    return picture.mean() + picture.std() * drawn


ALTERED: dict[str, Callable[[Samples], Samples]] = {
    "the calibration pictures": lambda samples: samples,
    "contrast 1.6": _each(_contrast),
    "brighter": _each(_brighter),
    "darker": _each(_darker),
    "upside down": _each(lambda picture, place, samples: picture[:, :, ::-1]),
    "quarters, enlarged": _each(_zoomed),
    "channels swapped": _each(lambda picture, place, samples: picture[:, ::-1]),
    "pairs mixed": _each(_mixed),
    "random pictures": _each(_synthetic),
    "negatives": lambda samples: make_negatives(samples),
}


def render(figures: dict[str, Any]) -> list[str]:
    """Returns the lines of the page's section."""
    splits = list(figures)
    names: Sequence[str] = list(figures[splits[0]])
    lines = [
        f"Correlation of the layers' errors (logarithms) with those on the held-out pictures, and "
        f"the SQNR there, dB, predicted with the {FLOAT_LAYERS} worst layers in float. Measured in "
        f"one run on {describe_machine()}.",
        "",
        "| pictures | " + " | ".join(splits) + " |",
        "|---" * (len(splits) + 1) + "|",
    ]
    for name in names:
        cells = [
            f"{figures[split][name]['correlation']:.2f}, {figures[split][name]['db']:.1f}"
            for split in splits
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    main()
