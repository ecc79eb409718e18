"""How many samples the streaming pass needs: the table of docs/experiments.md.

`python -m benchmarks.walked_samples FOLDER...`: networks as `float.onnx`, `calib.npz`, `held.npz`
in a folder (`benchmarks.fresh_networks`, `benchmarks.unseen` and `benchmarks.peers` write some).
Each is quantized for OpenVINO without timing anything, the pass limited to so many of its samples.
The SQNR is that of each output on held-out samples, pooled; seconds are of processor time, for the
whole quantization. Prints a line of JSON each.
"""

import json
import sys
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np

from artifacts.onnx_file import load_onnx
from benchmarks.peers.cases import CaseFiles, read_feeds
from benchmarks.quantizer_choices import make_settings
from compress.compare import compare_models
from compress.quantize import memory_estimate
from compress.quantize.prepare import prepare_network
from compress.quantize.streaming import StreamingPass

COUNTS = (4, 6, 8, 12, 16, 1000)
"""The last is all of them."""


def main() -> None:
    """Measures the networks that are given."""
    for folder in map(Path, sys.argv[1:]):
        for count in COUNTS:
            measure(folder, count)


def measure(folder: Path, count: int) -> None:
    """Quantizes a network with a pass over at most so many samples, and judges it."""
    files = CaseFiles(folder)
    model = load_onnx(files.model)
    calibration, held_out = read_feeds(files.calibration), read_feeds(files.held_out)
    began = time.process_time()
    with patch.multiple(memory_estimate, FEWEST_WALKED=count, MOST_WALKED=count):
        settings = make_settings()
        prepared = prepare_network(model, calibration, settings)
        decisions = StreamingPass(prepared, settings).run(calibration)
    seconds = time.process_time() - began
    outputs = compare_models(model, prepared.write_model(decisions), held_out)["outputs"]
    found_db = {name: round(value["sqnr_db"], 1) for name, value in outputs.items()}
    line = {
        "network": folder.name,
        "samples": min(count, len(calibration)),
        "mean_db": round(float(np.mean([value["sqnr_db"] for value in outputs.values()])), 2),
        "sqnr_db": found_db,
        "processor_s": round(seconds, 1),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
