"""`python -m benchmarks.random_graphs`: prints each random graph that comes out wrong.

Each graph is quantized with the defaults and again without the corrections that would hide what a
runtime does; or in a form that the clock would choose; or with options drawn at random.
"""

import argparse
import logging
from collections import Counter
from dataclasses import fields

from benchmarks.machine import describe_machine
from benchmarks.random_graphs.check import GRAPHS, RUNTIMES, check_graph
from benchmarks.random_graphs.options import SETTINGS
from compress.quantize.settings import QuantizeSettings
from framefit.quantize_choices import choose_weights


def main() -> None:
    """Checks the graphs of a range of seeds, and counts the verdicts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_graphs")
    parser.add_argument("--target", choices=[*RUNTIMES], default="openvino")
    parser.add_argument("--kind", choices=[*GRAPHS], default="chain")
    parser.add_argument("--settings", choices=[*SETTINGS], default="plain")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    weights = choose_weights(RUNTIMES[options.target])
    counts: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.count):
        for item in SETTINGS[options.settings](seed, options.target, weights):
            outcome = check_graph(seed, item, options.kind)
            counts[outcome.verdict] += 1
            if outcome.is_wrong:
                parts = f"{seed} ({_describe(item)}): {' - '.join(outcome.names)}"
                print(f"{parts}: {outcome.verdict}, {outcome.detail}", flush=True)
    found = ", ".join(f"{verdict} {count}" for verdict, count in counts.most_common())
    how = f"{options.target}, {options.kind}, {options.settings}"
    print(f"{describe_machine()}; {how}: {found}")


def _describe(settings: QuantizeSettings) -> str:
    """Returns what was set otherwise than by default."""
    default = QuantizeSettings()
    given = {item.name: getattr(settings, item.name) for item in fields(settings)}
    return ", ".join(
        f"{name} {value if isinstance(value, (bool, str, int, float)) else type(value).__name__}"
        for name, value in given.items()
        if value != getattr(default, name)
    )


if __name__ == "__main__":
    main()
