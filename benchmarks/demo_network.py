"""The demo: speed, quality, the frame at 30 Hz, and the cost of quantizing its network."""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from framefit.demo import DemoSettings, run_demo

OUT = Path("out/bench/demo")


def measure_demo() -> dict[str, Any]:
    """Runs the demo; returns its report."""
    result = run_demo(OUT, DemoSettings(), lambda what, done, total: None)
    return result.report.to_dict()


def measure_quantize() -> dict[str, float]:
    """Runs `compress quantize` on the demo's network and 32 pictures in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.demo_network"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(answer.splitlines()[-1])
    return figures


def measure_help() -> float:
    """Returns the median wall-clock seconds of `framefit --help`, of 5."""
    program = Path(sys.executable).with_name("framefit")
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([program, "--help"], check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[2]


def _quantize() -> None:
    from compress.quantize.settings import QuantizeSettings
    from framefit.quantize_job import quantize_file

    start = time.perf_counter()
    quantize_file(
        OUT / "road.onnx", str(OUT / "calibration"), QuantizeSettings(), out=OUT / "again.onnx"
    )
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_gib": peak_kib / 2**20}))


if __name__ == "__main__":
    _quantize()
