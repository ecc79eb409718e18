"""How near OpenVINO comes to what a file says."""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import openvino
from numpy.typing import NDArray

from artifacts.processor import read_flags

Arrays = dict[str, NDArray[Any]]


def run_as_written(model: onnx.ModelProto, feeds: Arrays) -> Arrays:
    """Returns what onnxruntime makes of a network without any optimization."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def measure_agreement_db(model: onnx.ModelProto, feeds: Arrays, precision: str = "f32") -> float:
    """Returns the SQNR of OpenVINO's first result against the file's, in dB.

    -inf where it refuses the file, or its result has another shape.
    """
    core = openvino.Core()
    hint = {"INFERENCE_PRECISION_HINT": precision}
    try:
        compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", hint)
    except RuntimeError:
        return -np.inf
    wanted = run_as_written(model, feeds)[model.graph.output[0].name].astype(np.float64)
    got = np.nan_to_num(compiled(feeds)[0]).astype(np.float64)
    if got.shape != wanted.shape:
        return -np.inf
    noise = max(np.square(wanted - got).sum(), 1e-12)
    return float(10 * np.log10(np.square(wanted).sum() / noise))


def misreads_odd_rows() -> bool:
    """Whether OpenVINO's kernels here misread INT4 weights of an odd number of inputs.

    Those for AVX2 and for AMX do, those for AVX-512 VNNI do not.
    """
    flags = read_flags()
    return "avx512_vnni" not in flags or "amx_int8" in flags
