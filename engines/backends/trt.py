"""TensorRT plans on an NVIDIA GPU, for both flavours: TensorRT and TensorRT-RTX."""

import importlib
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import (
    FramefitError,
    InputError,
    MissingExtraError,
    UnavailableError,
)
from artifacts.plan_manifest import FLAVOURS, PlanManifest, read_manifest, read_verified_plan
from engines.backend import Backend, RuntimeStatus, first_line
from engines.backends.cuda_calls import Cuda, PinnedBuffer
from engines.session import DYNAMIC, SessionBase, SessionSettings, TensorInfo, check_feeds

_NAME = "tensorrt"


class TrtSession(SessionBase):
    """A plan on one GPU, with pinned buffers and a stream of its own.

    One run copies the feeds into pinned memory, copies them to the device, executes, copies the
    outputs back and waits: its latency is the host latency. With `cuda_graph` both copies and the
    execution are one captured graph.

    Args:
        path: the `.plan` file, with its manifest beside it.
        settings: the device and whether a CUDA graph is asked for.

    Raises:
        UnsafeFileError: the plan's digest is not the manifest's.
        InputError: the plan does not fit this TensorRT, this GPU or this session.
        UnavailableError: TensorRT, the driver, the GPU or the CUDA graph cannot be had.
    """

    runtime = _NAME

    def __init__(self, path: Path, settings: SessionSettings) -> None:
        if settings.threads is not None:
            raise InputError(
                "threads were asked for, which the runtime 'tensorrt' does not have",
                fix="leave --threads out",
            )
        self._manifest = read_manifest(path)
        plan = read_verified_plan(path)
        self._settings = settings
        self._module = _import_flavour(self._manifest.flavour)
        self._cuda = Cuda(settings.device, self._manifest.flavour)
        self._context: Any = None
        self._engine: Any = None
        self._graph: Any = None
        try:
            self._open(path, plan)
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path, plan: bytes) -> None:
        self._capability = self._cuda.compute_capability()
        if not _runs_on(self._module, self._capability):
            raise UnavailableError(
                f"{path}: {_refusal(self._manifest.flavour, self._module, self._capability)}",
                "a GPU that it runs on, or a plan of the other flavour",
                "build one on this machine with: framefit export trt --flavour tensorrt",
            )
        self._engine = _deserialize(self._module, plan, path, self._manifest, self._capability)
        self._context = self._engine.create_execution_context()
        if self._context is None:
            raise UnavailableError(
                f"{path} cannot be made ready to run: {_last_error(self._module)}",
                "enough free GPU memory",
            )
        self._buffers: dict[str, PinnedBuffer] = {}
        self.inputs = self._bind(path, self._module.TensorIOMode.INPUT)
        self.outputs = self._bind(path, self._module.TensorIOMode.OUTPUT)
        self._enqueue()
        self._cuda.synchronize()
        if self._settings.cuda_graph:
            self._graph = self._capture(path)

    def _bind(self, path: Path, mode: Any) -> tuple[TensorInfo, ...]:
        tensors = []
        for index in range(self._engine.num_io_tensors):
            name = self._engine.get_tensor_name(index)
            if self._engine.get_tensor_mode(name) != mode:
                continue
            tensor = self._describe_tensor(path, name)
            buffer = self._cuda.allocate(tensor.shape, tensor.dtype)
            buffer.host[...] = 0
            self._context.set_tensor_address(name, buffer.address)
            self._buffers[name] = buffer
            tensors.append(tensor)
        return tuple(tensors)

    def _describe_tensor(self, path: Path, name: str) -> TensorInfo:
        shape = tuple(int(dim) for dim in self._context.get_tensor_shape(name))
        if DYNAMIC in shape or min(shape, default=1) < 0:
            raise InputError(
                f"{path}: tensor '{name}' has the dynamic shape {list(shape)}",
                "static shapes",
                "fix the model's --input-shape and build the plan again",
            )
        kind = self._engine.get_tensor_dtype(name)
        try:
            dtype = np.dtype(self._module.nptype(kind))
        except TypeError as error:
            raise InputError(
                f"{path}: tensor '{name}' is {kind}, which numpy does not have"
            ) from error
        return TensorInfo(name, shape, dtype)

    def _enqueue(self) -> None:
        for tensor in self.inputs:
            self._cuda.copy_in(self._buffers[tensor.name])
        if not self._context.execute_async_v3(int(self._cuda.stream)):
            self._cuda.synchronize()  # An error of CUDA's that stays is told as such.
            raise UnavailableError(f"TensorRT could not execute: {_last_error(self._module)}")
        for tensor in self.outputs:
            self._cuda.copy_out(self._buffers[tensor.name])

    def _capture(self, path: Path) -> Any:
        capturable = getattr(self._context, "is_stream_capturable", None)
        reason = ""
        if capturable is None or capturable(int(self._cuda.stream)):
            try:
                return self._cuda.capture(self._enqueue)
            except UnavailableError as error:
                reason = f": {error}"
        raise UnavailableError(
            f"{path} cannot be captured as a CUDA graph{reason}",
            fix="leave --cuda-graph out, or remove the operators that synchronize",
        )

    def run_borrowed(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Runs the network once; see `Session.run_borrowed`."""
        arrays = check_feeds(self.inputs, feeds)
        self._cuda.select()
        for tensor, array in zip(self.inputs, arrays, strict=True):
            np.copyto(self._buffers[tensor.name].host, array)
        if self._graph is None:
            self._enqueue()
        else:
            self._cuda.launch(self._graph)
        self._cuda.synchronize()
        return {tensor.name: self._buffers[tensor.name].host for tensor in self.outputs}

    def describe(self) -> dict[str, Any]:
        """Says what was asked for and what was got."""
        return {
            "runtime": _NAME,
            "flavour": self._manifest.flavour,
            "version": str(self._module.__version__),
            "built_with": self._manifest.tensorrt_version,
            "device": f"GPU {self._settings.device}, compute capability {self._capability}",
            "precision": "as in the strongly typed graph",
            "cuda_graph": {"asked": self._settings.cuda_graph, "got": self._graph is not None},
            "plan_sha256": self._manifest.plan_sha256,
        }

    def close(self) -> None:
        """Frees the engine, the buffers and the stream."""
        self._graph = None
        self._context = None
        self._engine = None
        self._cuda.close()


def _import_flavour(flavour: str) -> Any:
    try:
        return importlib.import_module(FLAVOURS[flavour])
    except ImportError as error:
        raise MissingExtraError(FLAVOURS[flavour], flavour, "running a TensorRT plan") from error


def _runs_on(module: Any, capability: int) -> bool:
    """Returns whether a TensorRT names a GPU's kind among its own, or names none (TensorRT)."""
    kinds = getattr(module, "ComputeCapability", None)
    return kinds is None or hasattr(kinds, f"SM{capability}")


def _refusal(flavour: str, module: Any, capability: int) -> str:
    return (
        f"{flavour} {module.__version__} does not run on a GPU of compute capability {capability}"
    )


@cache
def _logger(module: Any) -> Any:
    """Returns the one logger of a TensorRT module; it keeps the errors instead of printing them.

    TensorRT registers the first logger it sees for the whole process, so there is one.
    """

    class KeepErrors(module.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (module.ILogger.INTERNAL_ERROR, module.ILogger.ERROR):
                self.errors.append(message)

    return KeepErrors()


def _last_error(module: Any) -> str:
    errors = _logger(module).errors
    return " ".join(errors[-1].split())[:200] if errors else "TensorRT gave no reason"


def _deserialize(
    module: Any, plan: bytes, path: Path, manifest: PlanManifest, capability: int
) -> Any:
    _logger(module).errors.clear()
    engine = module.Runtime(_logger(module)).deserialize_cuda_engine(plan)
    if engine is None:
        built_for = ", ".join(str(value) for value in manifest.compute_capabilities)
        raise InputError(
            f"{path} cannot be loaded: {_last_error(module)}",
            f"a plan for compute capability {capability} and {manifest.flavour}"
            f" {module.__version__}",
            f"it was built for {built_for} with {manifest.tensorrt_version};"
            " build it again with: framefit export trt",
        )
    return engine


def _probe() -> RuntimeStatus:
    """Looks for the flavours that are installed, then for a GPU that one of them runs on."""
    modules = {}
    for flavour in FLAVOURS:
        try:
            modules[flavour] = _import_flavour(flavour)
        except Exception:
            continue
    if not modules:
        return RuntimeStatus(
            _NAME,
            False,
            reason="neither flavour is installed; pip install 'framefit[tensorrt-rtx]'"
            " or 'framefit[tensorrt]'",
        )
    version = ", ".join(f"{flavour} {module.__version__}" for flavour, module in modules.items())
    try:
        with closing(Cuda(0, next(iter(modules)))) as cuda:
            capability = cuda.compute_capability()
    except FramefitError as error:
        return RuntimeStatus(_NAME, False, version, first_line(error))
    if not any(_runs_on(module, capability) for module in modules.values()):
        refusals = (_refusal(*found, capability) for found in modules.items())
        return RuntimeStatus(_NAME, False, version, "; ".join(refusals))
    return RuntimeStatus(_NAME, True, version)


TENSORRT = Backend(
    name=_NAME,
    suffixes=(".plan",),
    summary="TensorRT and TensorRT-RTX plans on an NVIDIA GPU",
    probe=_probe,
    open=TrtSession,
)
