"""onnxruntime's `quantize_static`, after its own documented preprocessing."""

import time

STARTED = time.perf_counter()

from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from measured import run_child  # noqa: E402
from onnxruntime.quantization import (  # noqa: E402
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: E402


class Reader(CalibrationDataReader):
    """Hands the samples over one by one."""

    def __init__(self, samples: dict[str, np.ndarray]) -> None:
        count = len(next(iter(samples.values())))
        self._feeds = iter(
            {name: values[index : index + 1] for name, values in samples.items()}
            for index in range(count)
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Returns the next sample, None after the last."""
        return next(self._feeds, None)


def quantize(
    source: Path,
    samples: dict[str, np.ndarray],
    out: Path,
    method: CalibrationMethod,
    is_symmetric: bool,
) -> None:
    """Quantizes with weights per channel, signed and symmetric."""
    prepared = out.with_suffix(".prepared.onnx")
    try:
        quant_pre_process(str(source), str(prepared))
    except Exception:
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(out),
        Reader(samples),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QInt8 if is_symmetric else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=method,
        extra_options={"ActivationSymmetric": is_symmetric, "WeightSymmetric": True},
    )
    prepared.unlink()


if __name__ == "__main__":
    run_child(
        STARTED,
        {
            f"{kind}-{name}": partial(quantize, method=method, is_symmetric=kind == "symmetric")
            for kind in ("symmetric", "asymmetric")
            for name, method in (
                ("minmax", CalibrationMethod.MinMax),
                ("percentile", CalibrationMethod.Percentile),
                ("entropy", CalibrationMethod.Entropy),
            )
        },
    )
