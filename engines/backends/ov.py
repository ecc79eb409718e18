"""OpenVINO on the CPU: the runtime of choice where there is no GPU.

Float means float: OpenVINO would run a float network in bfloat16 where the processor has it, which
changes its results and makes a float-against-int8 comparison unfair, so the inference precision is
set to f32. Q/DQ pairs in the graph are still run in int8.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError, MissingExtraError
from artifacts.free_batch import find_batches
from artifacts.openvino_import import import_openvino
from artifacts.openvino_refusal import read_refusal
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

_NAME = "openvino"
_PRECISION = "f32"
_SINK_SUFFIX = "/sink_port_0"


class OpenVinoSession(SessionBase):
    """A model compiled by OpenVINO for the CPU, for the lowest latency of one inference.

    Inputs are handed over without a copy, and only where it is another array than the one before,
    since handing over takes time too. Outputs of known shape are always written to the same
    buffers, which `run_borrowed` lends.

    Args:
        path: the `.onnx` file.
        settings: threads and input shapes.

    Raises:
        InputError: OpenVINO refuses the file, or an input's shape stays dynamic.
        MissingExtraError: openvino is not installed.
    """

    runtime = _NAME
    extra_config: ClassVar[dict[str, Any]] = {}

    def __init__(self, path: Path, settings: SessionSettings) -> None:
        ov = _import()
        settings.require_cpu(_NAME)
        check_onnx_outline(path)
        self._settings = settings
        self._version = str(ov.__version__)
        self._tensor_class = ov.Tensor
        core = ov.Core()
        try:
            model = _read(core, path)
        except Exception as error:
            raise InputError(
                f"openvino cannot read {path}: {read_refusal(str(error))}", "a valid ONNX model"
            ) from error
        _fix_shapes(model, settings, path)
        self.inputs = tuple(_tensor(port, _name(port)) for port in model.inputs)
        require_static(self.inputs, path)
        self.outputs = tuple(_tensor(port, _name(port)) for port in model.outputs)
        try:
            self._compiled: Any = core.compile_model(
                model, "CPU", _config(settings) | self.extra_config
            )
        except Exception as error:
            raise InputError(
                f"openvino cannot compile {path}: {read_refusal(str(error))}",
                "operators it supports",
            ) from error
        self._device = str(core.get_property("CPU", "FULL_DEVICE_NAME"))
        self._request: Any = self._compiled.create_infer_request()
        self._given: dict[int, NDArray[Any]] = {}
        self._lent: dict[int, NDArray[Any]] = {}
        for index, port in enumerate(self._compiled.outputs):
            if port.get_partial_shape().is_static:
                buffer = ov.Tensor(port.get_element_type(), port.get_shape())
                self._request.set_output_tensor(index, buffer)
                self._lent[index] = buffer.data

    def run_borrowed(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Runs the network once; see `Session.run_borrowed`.

        `InferRequest.infer` would make a copy of every output, whether it is asked for or not.
        """
        arrays = check_feeds(self.inputs, feeds)
        for index, array in enumerate(arrays):
            if array is not self._given.get(index):
                tensor = self._tensor_class(_with_usual_type(array), shared_memory=True)
                self._request.set_input_tensor(index, tensor)
                self._given[index] = array
        self._request.start_async(share_inputs=True)
        self._request.wait()
        return {tensor.name: self._output(index) for index, tensor in enumerate(self.outputs)}

    def _output(self, index: int) -> NDArray[Any]:
        if index not in self._lent:
            fresh: NDArray[Any] = self._request.get_output_tensor(index).data
            return fresh
        return self._lent[index]

    def describe(self) -> dict[str, Any]:
        """Says what was asked for and what was got.

        `layers` counts the executed layers by the precision they run in, which shows whether
        Q/DQ pairs really became int8.
        """
        got = self._compiled.get_property
        return {
            "runtime": _NAME,
            "version": self._version,
            "device": self._device,
            "precision": {"asked": _PRECISION, "got": _text(got("INFERENCE_PRECISION_HINT"))},
            "threads": {
                "asked": self._settings.threads,
                "got": int(got("INFERENCE_NUM_THREADS")),
            },
            "streams": int(got("NUM_STREAMS")),
            "layers": _count_precisions(self._compiled),
        }

    def close(self) -> None:
        """Drops the compiled model."""
        self._given, self._lent = {}, {}
        self._request = None
        self._compiled = None


def _with_usual_type(array: NDArray[Any]) -> NDArray[Any]:
    """Returns the same memory with the first of numpy's types of that kind and size.

    OpenVINO does not know the second for int64, `longlong`, which onnxruntime's results have.
    """
    return array.view(np.dtype(array.dtype.str))


def _read(core: Any, path: Path) -> Any:
    """Reads a file; where onnx is installed, without crashing on what OpenVINO cannot convert."""
    try:
        from artifacts.openvino_clips import read_openvino
    except ImportError:
        return core.read_model(str(path))
    return read_openvino(core, path)


def _import() -> Any:
    try:
        return import_openvino()
    except ImportError as error:
        raise MissingExtraError("openvino", "", "running on OpenVINO") from error


def _config(settings: SessionSettings) -> dict[str, Any]:
    config: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": _PRECISION,
    }
    if settings.threads is not None:
        config["INFERENCE_NUM_THREADS"] = settings.threads
    return config


def _fix_shapes(model: Any, settings: SessionSettings, path: Path) -> None:
    known = {_name(port): port for port in model.inputs}
    tensors = [_tensor(port, name) for name, port in known.items()]
    batches = find_batches(_named_shapes(path, tensors))
    free = {item.name: item.of_one_sample().shape for item in tensors if item.name in batches}
    shapes = free | settings.shapes_for(list(known))
    if not shapes:
        return
    try:
        model.reshape({known[name]: list(dims) for name, dims in shapes.items()})
    except Exception as error:
        raise InputError(
            f"{path} cannot take the input shapes {shapes}: {first_line(error)}",
            "shapes that fit the network",
        ) from error


def _named_shapes(
    path: Path, tensors: Sequence[TensorInfo]
) -> Mapping[str, Sequence[int | str | None]]:
    """Returns the inputs' shapes; with names, which OpenVINO forgets, where onnx is installed."""
    shapes = {item.name: item.shape for item in tensors}
    if all(DYNAMIC not in shape for shape in shapes.values()) or path.suffix != ".onnx":
        return shapes
    try:
        from artifacts.onnx_file import named_shapes
    except ImportError:
        return shapes
    return shapes | named_shapes(path)


def _name(port: Any) -> str:
    """Returns the graph's own name of an input or output.

    A port carries every name of its tensor, inner ones too; its node keeps the graph's.
    """
    name = str(port.get_node().get_friendly_name()).removesuffix(_SINK_SUFFIX)
    return name if name in port.get_names() else str(port.get_any_name())


def _tensor(port: Any, name: str) -> TensorInfo:
    shape = tuple(
        DYNAMIC if dim.is_dynamic else dim.get_length() for dim in port.get_partial_shape()
    )
    kind = port.get_element_type()
    if kind.to_string() == "bf16":
        raise InputError(f"tensor '{name}' is bfloat16", "numbers of a type of numpy")
    return TensorInfo(name, shape, np.dtype(kind.to_dtype()))


def _count_precisions(compiled: Any) -> dict[str, int]:
    precisions = Counter(
        str(node.get_rt_info()["runtimePrecision"].astype(str))
        for node in compiled.get_runtime_model().get_ordered_ops()
        if node.get_type_name() not in ("Parameter", "Result", "Const")
    )
    return dict(precisions.most_common())


def _text(value: Any) -> str:
    return str(value.to_string()) if hasattr(value, "to_string") else str(value)


OPENVINO = Backend(
    name=_NAME,
    suffixes=(".onnx",),
    summary="OpenVINO on the CPU; the default there",
    probe=lambda: probe_import(_NAME, _import),
    open=OpenVinoSession,
)
