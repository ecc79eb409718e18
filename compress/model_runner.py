"""Runs a whole ONNX model with onnxruntime, Q/DQ pairs computed as written."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
from numpy.typing import NDArray

from artifacts.bias_quantization import BIAS_QUANTIZATION
from artifacts.errors import InputError
from artifacts.half_precision import widen_half
from artifacts.onnxruntime_refusal import refusal

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Array = NDArray[Any]
Runner = Callable[[Mapping[str, Array]], dict[str, Array]]


def with_outputs(model: onnx.ModelProto, watched: Sequence[str]) -> onnx.ModelProto:
    """Returns the model, or a copy in which the watched tensors are outputs as well."""
    outputs = {item.name for item in model.graph.output}
    inner = [name for name in dict.fromkeys(watched) if name not in outputs]
    if not inner:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    return copy


def open_runner(model: onnx.ModelProto, watched: Sequence[str] = ()) -> Runner:
    """Returns a function from inputs to outputs, both by name.

    It raises InputError where an input is missing, or onnxruntime fails. Half precision that
    onnxruntime does not open is computed in float32: it has no kernels for bfloat16 on a CPU, and
    refuses a norm whose operands differ, as PyTorch exports it under autocast.

    Args:
        model: it is not changed.
        watched: tensors that are returned as well, where they are no outputs anyway.

    Raises:
        InputError: onnxruntime does not open it.
    """
    try:
        session = _open_session(with_outputs(model, watched))
    except InputError:
        wide = widen_half(model)
        if wide is model:
            raise
        session = _open_session(with_outputs(wide, watched))
    names = [item.name for item in session.get_outputs()]
    wanted = {item.name for item in session.get_inputs()}

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        missing = wanted - set(feeds)
        if missing:
            raise InputError(f"the samples have no input '{min(missing)}'")
        try:
            values = session.run(names, {name: feeds[name] for name in wanted})
        except Exception as error:
            raise refusal(error) from error
        return dict(zip(names, values, strict=True))

    return run


def _open_session(model: onnx.ModelProto) -> "InferenceSession":
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        return ort.InferenceSession(
            model.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=[BIAS_QUANTIZATION],
        )
    except Exception as error:
        raise refusal(error) from error
