"""What weights that make up for their inputs' errors bring; a table of docs/experiments.md.

`python -m benchmarks.input_correction [NAME ...]`, after `python -m benchmarks.package_networks`.

The same quantizer with and without the correction, with zero points and without them, on the
networks of packages and on the splits of `benchmarks.quantizer_choices`. SQNR is that of each
output on held-out pictures, and of the parts of one that joins unlike tensors; seconds are those of
the whole quantization.
"""

import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from artifacts.atomic import write_json, write_text
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.package_networks import fetched_networks
from benchmarks.quantizer_choices import PAGE, RAW, open_splits
from compress.head_judge import HeadJudge
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings

SCHEMES = {"zero points": False, "none": True}
CORRECTS = {"without": False, "with": True}


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    rows = [row for case in _open_cases(sys.argv[1:]) for row in _measure(*case)]
    write_json(RAW.with_name("input_correction.json"), rows)
    text = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, replace_section(text, "input_correction", _render(rows)))


def _open_cases(names: list[str]) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yields name, model, calibration and held-out pictures; all without names."""
    for network in fetched_networks(names):
        model = network.load()
        yield network.name, model, *network.samples(model)
    for split, case in open_splits().items():
        if split in (names or [split]):
            yield split, *case


def _measure(
    name: str, model: Any, calibration: list[Any], held_out: list[Any]
) -> Iterator[dict[str, Any]]:
    judge = HeadJudge.of_outputs(model, held_out)
    for scheme, symmetric in SCHEMES.items():
        row: dict[str, Any] = {"network": name, "scheme": scheme}
        for label, corrects in CORRECTS.items():
            settings = QuantizeSettings(
                target="openvino", symmetric=symmetric, input_correction=corrects
            )
            start = perf_counter()
            quantized = quantize_model(model, calibration, settings).model
            row[label] = {"seconds": perf_counter() - start, "sqnr_db": judge.measure(quantized)}
        print(row, flush=True)
        yield row


def _render(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"SQNR on held-out pictures in dB, pooled, and the seconds that quantizing took. Measured "
        f"in one run on {describe_machine()}.",
        "",
        *table_lines(
            ("network", "activations", *CORRECTS, "seconds"),
            (
                (
                    row["network"],
                    row["scheme"],
                    *(_show(row[label]["sqnr_db"]) for label in CORRECTS),
                    ", ".join(f"{row[label]['seconds']:.0f}" for label in CORRECTS),
                )
                for row in rows
            ),
        ),
    ]


def _show(sqnr_db: dict[str, float]) -> str:
    return "; ".join(f"{head} {value:.1f}" for head, value in sqnr_db.items())


if __name__ == "__main__":
    main()
