"""NVIDIA Model Optimizer's `modelopt.onnx.quantization.quantize` on the CPU."""

import time

STARTED = time.perf_counter()

from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from measured import run_child  # noqa: E402
from modelopt.onnx.quantization import quantize as modelopt_quantize  # noqa: E402


def quantize(
    source: Path, samples: dict[str, np.ndarray], out: Path, method: str, high_precision: str
) -> None:
    """Quantizes; what is not INT8 gets the type `high_precision` (its default is fp16)."""
    modelopt_quantize(
        str(source),
        quantize_mode="int8",
        calibration_data=samples,
        calibration_method=method,
        calibration_eps=["cpu"],
        high_precision_dtype=high_precision,
        output_path=str(out),
    )


if __name__ == "__main__":
    run_child(
        STARTED,
        {
            "default": partial(quantize, method="entropy", high_precision="fp16"),
            "entropy": partial(quantize, method="entropy", high_precision="fp32"),
            "max": partial(quantize, method="max", high_precision="fp32"),
        },
    )
