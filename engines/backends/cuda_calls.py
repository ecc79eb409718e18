"""CUDA's runtime calls through cuda-bindings: memory, one stream, one graph.

cuda-bindings is used for everything, memory too, because pycuda cannot capture graphs and is no
dependency of TensorRT-RTX; so both flavours of TensorRT need one package only.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import DeviceFaultError, InputError, MissingExtraError, UnavailableError

_HOST_ALLOC_DEFAULT = 0
_STREAM_NON_BLOCKING = 1
_STICKY = {
    "cudaErrorIllegalAddress",
    "cudaErrorLaunchTimeout",
    "cudaErrorAssert",
    "cudaErrorHardwareStackError",
    "cudaErrorIllegalInstruction",
    "cudaErrorMisalignedAddress",
    "cudaErrorInvalidAddressSpace",
    "cudaErrorInvalidPc",
    "cudaErrorLaunchFailure",
    "cudaErrorECCUncorrectable",
    "cudaErrorNvlinkUncorrectable",
    "cudaErrorContained",
}
"""Errors after which CUDA's documentation has the process end and be launched again."""


class Cuda:
    """One GPU and a stream of its own; frees on `close` whatever it handed out.

    Args:
        device: index of the GPU.
        extra: framefit's extra that brings cuda-bindings, for the error message.

    Raises:
        MissingExtraError: cuda-bindings is not installed.
        UnavailableError: there is no GPU or no driver.
        InputError: there is no GPU of that index.
    """

    def __init__(self, device: int, extra: str) -> None:
        self.api: Any = import_cuda(extra)
        self.device = device
        self._release: list[tuple[str, Any]] = []
        try:
            count = self.call("cudaGetDeviceCount")
        except UnavailableError as error:
            raise UnavailableError(
                f"no NVIDIA GPU can be used: {error}", "a GPU and its driver"
            ) from error
        if device >= count:
            raise InputError(f"GPU {device} was asked for", f"a device from 0 to {count - 1}")
        self.select()
        self.stream: Any = self.call("cudaStreamCreateWithFlags", _STREAM_NON_BLOCKING)
        self._release.append(("cudaStreamDestroy", self.stream))

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a function of the CUDA runtime and returns its result.

        Raises:
            DeviceFaultError: an error that all later calls of this process repeat.
            UnavailableError: the call failed; the message holds CUDA's own words.
        """
        error, *results = getattr(self.api, name)(*arguments)
        if error != self.api.cudaError_t.cudaSuccess:
            kind = DeviceFaultError if error.name in _STICKY else UnavailableError
            raise kind(f"{name} failed: {self._explain(error)}")
        return results[0] if results else None

    def _explain(self, error: Any) -> str:
        _, text = self.api.cudaGetErrorString(error)
        return text.decode() if isinstance(text, bytes) else str(text)

    def select(self) -> None:
        """Makes this GPU the calling thread's."""
        self.call("cudaSetDevice", self.device)

    def compute_capability(self) -> int:
        """Returns the GPU's compute capability, as 86 for 8.6."""
        kind = self.api.cudaDeviceAttr
        major = self.call(
            "cudaDeviceGetAttribute", kind.cudaDevAttrComputeCapabilityMajor, self.device
        )
        minor = self.call(
            "cudaDeviceGetAttribute", kind.cudaDevAttrComputeCapabilityMinor, self.device
        )
        return int(major) * 10 + int(minor)

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> "PinnedBuffer":
        """Allocates a pinned host array and device memory of the same size."""
        size_bytes = max(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, 1)
        host_address = int(self.call("cudaHostAlloc", size_bytes, _HOST_ALLOC_DEFAULT))
        self._release.append(("cudaFreeHost", host_address))
        address = int(self.call("cudaMalloc", size_bytes))
        self._release.append(("cudaFree", address))
        raw = (ctypes.c_ubyte * size_bytes).from_address(host_address)
        host = np.frombuffer(memoryview(raw), dtype, count=int(np.prod(shape, dtype=np.int64)))
        return PinnedBuffer(host.reshape(shape), host_address, address, size_bytes)

    def copy_in(self, buffer: "PinnedBuffer") -> None:
        """Queues the copy of a buffer's host array to the device."""
        kind = self.api.cudaMemcpyKind.cudaMemcpyHostToDevice
        self.call(
            "cudaMemcpyAsync",
            buffer.address,
            buffer.host_address,
            buffer.size_bytes,
            kind,
            self.stream,
        )

    def copy_out(self, buffer: "PinnedBuffer") -> None:
        """Queues the copy of a buffer's device memory to the host array."""
        kind = self.api.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self.call(
            "cudaMemcpyAsync",
            buffer.host_address,
            buffer.address,
            buffer.size_bytes,
            kind,
            self.stream,
        )

    def synchronize(self) -> None:
        """Waits until the stream has done its work."""
        self.call("cudaStreamSynchronize", self.stream)

    def capture(self, enqueue: Callable[[], None]) -> Any:
        """Records what `enqueue` puts on the stream as a graph, ready to launch.

        Raises:
            UnavailableError: something in it cannot be captured. Nothing falls back.
        """
        mode = self.api.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self.call("cudaStreamBeginCapture", self.stream, mode)
        try:
            enqueue()
        except BaseException:
            self.api.cudaStreamEndCapture(self.stream)
            raise
        graph = self.call("cudaStreamEndCapture", self.stream)
        self._release.append(("cudaGraphDestroy", graph))
        executable = self.call("cudaGraphInstantiate", graph, 0)
        self._release.append(("cudaGraphExecDestroy", executable))
        return executable

    def launch(self, executable: Any) -> None:
        """Queues a captured graph."""
        self.call("cudaGraphLaunch", executable, self.stream)

    def close(self) -> None:
        """Frees everything, last first; closing twice is harmless."""
        while self._release:
            name, handle = self._release.pop()
            getattr(self.api, name)(handle)


@dataclass(frozen=True)
class PinnedBuffer:
    """A tensor's two homes.

    Attributes:
        host: the pinned array; valid until `Cuda.close`.
        host_address: its address.
        address: the device memory's address.
        size_bytes: the size of each.
    """

    host: NDArray[Any]
    host_address: int
    address: int
    size_bytes: int


def import_cuda(extra: str) -> Any:
    """Imports CUDA's runtime API.

    Raises:
        MissingExtraError: cuda-bindings is not installed.
    """
    try:
        from cuda.bindings import runtime
    except ImportError as error:
        raise MissingExtraError("cuda-bindings", extra, "running a TensorRT plan") from error
    return runtime
