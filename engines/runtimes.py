"""The runtimes by name, and the one way to open a session."""

from pathlib import Path

from artifacts.errors import InputError
from engines.backend import Backend, RuntimeStatus
from engines.backends import null, ort, ov, trt
from engines.session import Session, SessionSettings, TensorInfo

__all__ = [
    "BACKENDS",
    "RuntimeStatus",
    "Session",
    "SessionSettings",
    "TensorInfo",
    "default_runtime",
    "list_runtimes",
    "open_session",
]

BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (ov.OPENVINO, ort.ONNXRUNTIME, trt.TENSORRT, null.NULL)
}
_DEFAULT_SETTINGS = SessionSettings()


def default_runtime(path: Path | str) -> str:
    """Returns the runtime that opens a file unless another is named.

    The first row of `BACKENDS` that takes the suffix: openvino for `.onnx`, tensorrt for `.plan`.

    Raises:
        InputError: no runtime takes such a file.
    """
    suffix = Path(path).suffix.lower()
    for backend in BACKENDS.values():
        if suffix in backend.suffixes:
            return backend.name
    known = sorted({suffix for backend in BACKENDS.values() for suffix in backend.suffixes})
    raise InputError(f"{path} is of no kind that a runtime opens", " or ".join(known))


def open_session(
    path: Path | str,
    runtime: str | None = None,
    settings: SessionSettings = _DEFAULT_SETTINGS,
) -> Session:
    """Opens a model for running.

    Args:
        path: an `.onnx` model or a `.plan` with its manifest beside it.
        runtime: a name of `BACKENDS`; None takes `default_runtime(path)`.
        settings: threads, CUDA graph, device, input shapes.

    Returns:
        the session; close it, or use it in a `with` block.

    Raises:
        InputError: the file or the runtime's name is wrong, or a setting cannot be had.
        UnavailableError: the runtime or its device is missing on this machine.
    """
    path = Path(path)
    name = runtime or default_runtime(path)
    if name not in BACKENDS:
        raise InputError(f"runtime is '{name}'", ", ".join(BACKENDS))
    backend = BACKENDS[name]
    backend.check_file(path)
    return backend.open(path, settings)


def list_runtimes() -> list[RuntimeStatus]:
    """Tells for each runtime whether it is usable here and why not."""
    return [backend.probe() for backend in BACKENDS.values()]
