"""onnxruntime on the CPU: the reference for parity."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.bias_quantization import BIAS_QUANTIZATION, PRODUCT_FUSION
from artifacts.errors import InputError, MissingExtraError
from artifacts.free_batch import find_batches
from artifacts.onnxruntime_refusal import refusal
from engines.backend import Backend, first_line, probe_import
from engines.onnx_outline import check_onnx_outline
from engines.session import (
    DYNAMIC,
    SessionBase,
    SessionSettings,
    TensorInfo,
    check_feeds,
    require_static,
)

_NAME = "onnxruntime"
_FATAL_ONLY = 4
_STOP_SPINNING = "session.force_spinning_stop"
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    "bool": "bool",
    **{kind: kind for kind in ("int8", "uint8", "int16", "uint16", "int32", "int64", "uint64")},
}


class OrtSession(SessionBase):
    """A model opened by onnxruntime's CPU provider.

    Args:
        path: the `.onnx` file.
        settings: threads and input shapes.

    Raises:
        InputError: onnxruntime refuses the file, or an input's shape stays dynamic.
        MissingExtraError: onnxruntime is not installed.
    """

    runtime = _NAME

    def __init__(self, path: Path, settings: SessionSettings) -> None:
        ort = _import()
        settings.require_cpu(_NAME)
        check_onnx_outline(path)
        self._settings = settings
        self._version = str(ort.__version__)
        try:
            self._session: Any = self._open(ort, path)
        except Exception as error:
            raise InputError(
                f"onnxruntime cannot open {path}: {first_line(error)}", "a valid ONNX model"
            ) from error
        values = self._session.get_inputs()
        shapes = settings.shapes_for([value.name for value in values])
        free = find_batches({value.name: value.shape for value in values}) - shapes.keys()
        tensors = (_tensor(value, shapes.get(value.name)) for value in values)
        self.inputs = tuple(one.of_one_sample() if one.name in free else one for one in tensors)
        self.outputs = tuple(_tensor(value, None) for value in self._session.get_outputs())
        require_static(self.inputs, path)

    def _open(self, ort: Any, path: Path) -> Any:
        options = ort.SessionOptions()
        options.log_severity_level = _FATAL_ONLY
        if self._settings.threads is not None:
            options.intra_op_num_threads = self._settings.threads
        if self._settings.takes_turns:
            options.add_session_config_entry(_STOP_SPINNING, "1")
        self._prepare(options)

        def start(*disabled: str) -> Any:
            return ort.InferenceSession(
                str(path),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=[BIAS_QUANTIZATION, *disabled],
            )

        try:
            return start()
        except ort.capi.onnxruntime_pybind11_state.Fail:
            return start(PRODUCT_FUSION)

    def _prepare(self, options: Any) -> None:
        """Lets a subclass change the session's options before it is opened."""

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Runs the network once; see `Session.run`."""
        arrays = check_feeds(self.inputs, feeds)
        names = [tensor.name for tensor in self.inputs]
        try:
            results = self._session.run(None, dict(zip(names, arrays, strict=True)))
        except Exception as error:
            raise refusal(error) from error
        return {tensor.name: result for tensor, result in zip(self.outputs, results, strict=True)}

    def run_borrowed(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Like `run`, as the outputs are new arrays anyway."""
        return self.run(feeds)

    def describe(self) -> dict[str, Any]:
        """Says what was asked for and what was got."""
        return {
            "runtime": _NAME,
            "version": self._version,
            "device": "CPU",
            "precision": "as in the graph",
            "threads": {"asked": self._settings.threads, "got": self._count_threads()},
            "providers": {
                "asked": ["CPUExecutionProvider"],
                "got": list(self._session.get_providers()),
            },
        }

    def _count_threads(self) -> int | None:
        """Returns the threads set; None where onnxruntime takes its default."""
        return int(self._session.get_session_options().intra_op_num_threads) or None

    def close(self) -> None:
        """Drops the model."""
        self._session = None


def _import() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "", "running on onnxruntime") from error
    return onnxruntime


def _tensor(value: Any, shape: tuple[int, ...] | None) -> TensorInfo:
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    if kind not in _DTYPES:
        raise InputError(f"tensor '{value.name}' is {value.type}", "numbers of a type of numpy")
    dims = tuple(dim if isinstance(dim, int) and dim > 0 else DYNAMIC for dim in value.shape)
    return TensorInfo(value.name, shape or dims, np.dtype(_DTYPES[kind]))


ONNXRUNTIME = Backend(
    name=_NAME,
    suffixes=(".onnx",),
    summary="onnxruntime on the CPU; the reference for parity",
    probe=lambda: probe_import(_NAME, _import),
    open=OrtSession,
)
