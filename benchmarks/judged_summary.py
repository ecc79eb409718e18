"""Prints what raw figures of `benchmarks.peers` and `benchmarks.unseen` come down to, as a table.

`python -m benchmarks.judged_summary out/peers/figures.json out/bench/unseen.json`
"""

import json
import sys
from pathlib import Path

from benchmarks.unseen.page import summary_lines


def main() -> None:
    """Prints a row for each network of the files that are named."""
    cases = {}
    for name in sys.argv[1:]:
        cases |= json.loads(Path(name).read_text(encoding="utf-8"))["cases"]
    print("\n".join(summary_lines(cases)))


if __name__ == "__main__":
    main()
