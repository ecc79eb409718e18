"""`python -m benchmarks.random_graphs.builds`: what lint calls buildable builds, on random graphs.

Each graph is quantized for TensorRT, written as `export trt` writes it for the parser, linted, and
built (not run) with TensorRT-RTX.
"""

import argparse
import logging
from collections import Counter

from artifacts.errors import InputError
from benchmarks.random_graphs.check import GRAPHS, draw_samples
from benchmarks.random_graphs.options import SETTINGS
from benchmarks.zoo.onnx_cases import Builder
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from export.lint import lint_model
from export.parser_forms import write_for_parser


def main() -> None:
    """Builds the graphs of a range of seeds, and prints those on which the two differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_graphs.builds")
    parser.add_argument("--kind", choices=[*GRAPHS], default="blocks")
    parser.add_argument("--settings", choices=[*SETTINGS], default="plain")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    counts: Counter[str] = Counter()
    with Builder() as builder:
        for seed in range(options.first, options.first + options.count):
            settings = next(iter(SETTINGS[options.settings](seed, "tensorrt", "int8")))
            found = check_build(seed, settings, options.kind, builder)
            counts[found] += 1
            if found not in ("built", "refused", "nothing"):
                names = " - ".join(GRAPHS[options.kind](seed).names)
                print(f"{seed}: {names}: {found}", flush=True)
    print(", ".join(f"{what} {count}" for what, count in counts.most_common()))


def check_build(seed: int, settings: QuantizeSettings, kind: str, builder: Builder) -> str:
    """Returns "built", "refused" by lint and by the build, or on what the two differ.

    Args:
        seed: draws the graph, and its inputs.
        settings: how it is quantized.
        kind: of `GRAPHS`.
        builder: builds in a child process.
    """
    model = GRAPHS[kind](seed).to_model()
    try:
        quantized = quantize_model(model, draw_samples(seed), settings).model
    except InputError as error:
        return "nothing" if "nothing" in str(error) else f"not quantized: {error}"
    written = write_for_parser(quantized)
    report = lint_model(written, target="tensorrt-rtx")
    is_built = builder.build(written.SerializeToString())
    if is_built == report.is_buildable:
        return "built" if is_built else "refused"
    if not is_built:
        return "not built, and lint has no error"
    errors = "; ".join(item.what for item in report.findings if item.severity == "error")
    return f"built, though lint says: {errors}"


if __name__ == "__main__":
    main()
