"""NNCF's `quantize`, on the ONNX file and, as its users do, on OpenVINO's own format."""

import time

STARTED = time.perf_counter()

from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import nncf  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import openvino  # noqa: E402
from measured import run_child  # noqa: E402


def quantize(source: Path, samples: dict[str, np.ndarray], out: Path, **settings: Any) -> None:
    """Quantizes; an output that ends in `.xml` takes the OpenVINO route."""
    count = len(next(iter(samples.values())))
    feeds = [
        {name: values[index : index + 1] for name, values in samples.items()}
        for index in range(count)
    ]
    is_openvino = out.suffix == ".xml"
    model = openvino.Core().read_model(source) if is_openvino else onnx.load(source)
    result = nncf.quantize(model, nncf.Dataset(feeds), subset_size=count, **settings)
    if is_openvino:
        openvino.save_model(result, out, compress_to_fp16=False)
    else:
        onnx.save(result, out)


if __name__ == "__main__":
    mixed = nncf.QuantizationPreset.MIXED
    run_child(
        STARTED,
        {
            "default": quantize,
            "mixed": partial(quantize, preset=mixed),
            "accurate": partial(quantize, preset=mixed, fast_bias_correction=False),
        },
    )
