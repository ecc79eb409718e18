"""Holds predictions of this machine against measured times.

    .venv/bin/python -m benchmarks.roofline_predictions model.onnx ...

The prediction uses this machine's measured peaks and the efficiencies that predictions for other
devices use in the same way. A disturbed machine measures low peaks and long times.
"""

import sys
from pathlib import Path

from engines.runtimes import SessionSettings
from framefit.why_job import roofline_network
from latency_budget.why.roofline import predict


def main() -> None:
    """Prints a Markdown table: predicted interval, measured median, share of the roofline."""
    print("| network | predicted, ms | measured P50, ms | inside | of the roofline | wall |")
    print("|---|---:|---:|---|---:|---|")
    for name in sys.argv[1:]:
        found = roofline_network(Path(name), SessionSettings(), targets=[], is_measured=True)
        if found.machine is None or found.walls is None or not found.measured_s:
            continue
        interval = predict(found.costs, found.machine)
        high_s = interval.high_s or float("inf")
        is_inside = interval.low_s <= found.measured_s <= high_s
        print(
            f"| {Path(name).name} | {interval.low_s * 1e3:.2f} to {high_s * 1e3:.2f} "
            f"| {found.measured_s * 1e3:.2f} | {'yes' if is_inside else 'no'} "
            f"| {found.achieved:.0%} | {found.walls.wall} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
