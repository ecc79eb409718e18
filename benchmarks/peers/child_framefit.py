"""framefit's own `compress quantize`, through its command line."""

import time

STARTED = time.perf_counter()

import sys  # noqa: E402

from benchmarks.peers.measured import print_cost  # noqa: E402
from framefit.cli import main  # noqa: E402


def run() -> int:
    """Quantizes SOURCE with DATA into OUT; the other arguments are options of the command."""
    imported = time.perf_counter()
    source, data, out, *options = sys.argv[1:]
    code = main(["compress", "quantize", source, "--data", data, "--out", out, *options])
    print_cost(STARTED, imported)
    return code


if __name__ == "__main__":
    sys.exit(run())
