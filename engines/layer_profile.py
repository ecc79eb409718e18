"""How long each layer of a network takes, as its runtime reports it."""

from collections.abc import Callable
from pathlib import Path

from artifacts.errors import InputError
from engines.profiles import ort, ov, trt
from engines.profiles.layer_time import LayerProfile, Now
from engines.runtimes import BACKENDS, SessionSettings, default_runtime
from engines.session import Feeds

__all__ = ["PROFILERS", "profile_layers"]

RUNS = 20


PROFILERS: dict[str, Callable[[Path, SessionSettings, Feeds | None, int, Now], LayerProfile]] = {
    "openvino": ov.profile,
    "onnxruntime": ort.profile,
    "tensorrt": trt.profile,
}


def profile_layers(
    path: Path | str,
    runtime: str | None = None,
    settings: SessionSettings | None = None,
    *,
    now_ns: Now,
    feeds: Feeds | None = None,
    runs: int = RUNS,
) -> LayerProfile:
    """Runs a network with its runtime's profiler on and returns each layer's median time.

    Profiling itself costs time in every layer, so the sum is more than an unprofiled run takes; the
    shares are what a profile is for.

    Args:
        path: an `.onnx` model or a `.plan` with its manifest.
        runtime: a name of `PROFILERS`; None takes the file's own.
        settings: threads, device, input shapes.
        now_ns: the clock, in integer nanoseconds.
        feeds: the inputs; None for zeros.
        runs: profiled runs after one that is not counted.

    Raises:
        InputError: the file, the runtime or `runs` is wrong, or the runtime has no profiler.
        UnavailableError: the runtime or its device is missing on this machine.
    """
    path = Path(path)
    name = runtime or default_runtime(path)
    if name not in PROFILERS:
        raise InputError(f"no profile per layer of '{name}'", ", ".join(PROFILERS))
    if runs < 1:
        raise InputError(f"runs is {runs}", "1 or more")
    BACKENDS[name].check_file(path)
    return PROFILERS[name](path, settings or SessionSettings(), feeds, runs, now_ns)
