"""What each child does around its tool: times the work and tells its own peak memory.

A child is called with the float network, the calibration `.npz`, the file to write and the name of
its setting. Its last line on stdout is {"seconds", "import_s", "cpu_s", "peak_mib"}.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

Quantize = Callable[[Path, dict[str, np.ndarray], Path], None]


def run_child(started: float, settings: dict[str, Quantize]) -> None:
    """Runs the setting that the command line names.

    Args:
        started: `time.perf_counter()` before the tool was imported.
        settings: what each setting's name does with (float network, samples, output).
    """
    imported = time.perf_counter()
    source, data, out, name = sys.argv[1:5]
    with np.load(data, allow_pickle=False) as arrays:
        samples = {key: arrays[key] for key in arrays.files}
    settings[name](Path(source), samples, Path(out))
    print_cost(started, imported)


def print_cost(started: float, imported: float) -> None:
    """Prints the figures of this process; the two times are those of `perf_counter`."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    peak_kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    figures = {
        "seconds": time.perf_counter() - imported,
        "import_s": imported - started,
        "cpu_s": time.process_time(),
        "peak_mib": peak_kib / 1024,
    }
    print("\n" + json.dumps(figures))
