"""The null runtime: declared shapes, zeros out. It stands in for a network in tests.

It computes nothing and reads no clock. What it "costs" is whatever the caller injects as `delay`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.free_batch import find_batches
from engines.backend import Backend, RuntimeStatus, first_line
from engines.onnx_outline import check_onnx_outline
from engines.session import (
    DYNAMIC,
    SessionBase,
    SessionSettings,
    TensorInfo,
    check_feeds,
    require_static,
)

_NAME = "null"


class NullSession(SessionBase):
    """A session that returns zeros of the declared shapes.

    Args:
        inputs: the inputs that `run` insists on.
        outputs: the outputs it returns; a dynamic dimension becomes 1.
        delay: called once per run, before the outputs are made; None for nothing.
    """

    runtime = _NAME

    def __init__(
        self,
        inputs: tuple[TensorInfo, ...],
        outputs: tuple[TensorInfo, ...],
        delay: Callable[[], None] | None = None,
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._delay = delay

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Checks `feeds`, calls the delay and returns zeros by output name."""
        check_feeds(self.inputs, feeds)
        if self._delay is not None:
            self._delay()
        return {
            tensor.name: np.zeros([max(dim, 1) for dim in tensor.shape], tensor.dtype)
            for tensor in self.outputs
        }

    def run_borrowed(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Like `run`, as the outputs are new arrays anyway."""
        return self.run(feeds)

    def describe(self) -> dict[str, Any]:
        """Says that nothing is computed."""
        return {"runtime": _NAME, "version": "", "device": "none", "precision": "none"}

    def close(self) -> None:
        """Does nothing, as nothing is held."""


def _probe() -> RuntimeStatus:
    return RuntimeStatus(_NAME, True)


def _open(path: Path, settings: SessionSettings) -> NullSession:
    """Declares the inputs and outputs of an `.onnx` file without running it."""
    import onnx

    settings.require_cpu(_NAME)
    check_onnx_outline(path)
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}", "an ONNX model") from error
    weights = {tensor.name for tensor in graph.initializer}
    values = [value for value in graph.input if value.name not in weights]
    shapes = settings.shapes_for([value.name for value in values])
    free = find_batches({value.name: _named_dims(value) for value in values}) - shapes.keys()
    tensors = (_tensor(value, shapes.get(value.name)) for value in values)
    inputs = tuple(one.of_one_sample() if one.name in free else one for one in tensors)
    require_static(inputs, path)
    return NullSession(inputs, tuple(_tensor(value, None) for value in graph.output))


def _named_dims(value: Any) -> list[int | str]:
    return [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]


def _tensor(value: Any, shape: tuple[int, ...] | None) -> TensorInfo:
    import onnx

    kind = value.type.tensor_type
    dims = tuple(dim.dim_value or DYNAMIC for dim in kind.shape.dim)
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return TensorInfo(value.name, shape or dims, dtype)


NULL = Backend(
    name=_NAME,
    suffixes=(".onnx",),
    summary="returns zeros of the declared shapes; for tests",
    probe=_probe,
    open=_open,
)
