"""`python -m benchmarks.random_graphs`: prints each random graph that comes out wrong.

Each graph is quantized with the defaults, and again without the corrections that would hide what a
runtime does: a bias that a correction adds keeps OpenVINO from moving a layer's rescaling.
"""

import argparse
import logging
from collections import Counter
from dataclasses import replace

from benchmarks.machine import describe_machine
from benchmarks.random_graphs.check import GRAPHS, RUNTIMES, check_graph, settings_for
from compress.quantize.settings import QuantizeSettings
from framefit.quantize_job import choose_weights


def main() -> None:
    """Checks the graphs of a range of seeds, and counts the verdicts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_graphs")
    parser.add_argument("--target", choices=[*RUNTIMES], default="openvino")
    parser.add_argument("--kind", choices=[*GRAPHS], default="chain")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    weights = choose_weights(RUNTIMES[options.target])
    plain = settings_for(QuantizeSettings(weights=weights), options.target)
    settings = (plain, replace(plain, equalization=False, bias_correction=False))
    counts: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.count):
        for item in settings:
            outcome = check_graph(seed, item, options.kind)
            counts[outcome.verdict] += 1
            if outcome.is_wrong:
                corrected = "corrected" if item.bias_correction else "not corrected"
                parts = f"{seed} ({corrected}): {' - '.join(outcome.names)}"
                print(f"{parts}: {outcome.verdict}, {outcome.detail}", flush=True)
    found = ", ".join(f"{verdict} {count}" for verdict, count in counts.most_common())
    print(f"{describe_machine()}; {options.target}, {options.kind}: {found}")


if __name__ == "__main__":
    main()
