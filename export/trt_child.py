"""Child process that builds one TensorRT plan.

TensorRT is native code that a graph can crash or hang, so it runs here, and a crash is told by this
process's exit status. It imports nothing of framefit, so that it starts quickly.

Usage: `trt_child.py REQUEST RESPONSE`, both JSON files. The request:
`{"module": str, "onnx": path, "plan": path, "compute_capabilities": [int],
"timing_cache": path | null}`.
The response has `version` and `compute_capabilities`, or `error` = `{"kind", "what", "node",
"operator", "known"}` with the kinds `unavailable`, `capability`, `parse` and `build`.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

_PARSING = "Parsing node: "


class BuildError(Exception):
    """A build that failed, with what the parent needs to say why."""

    def __init__(self, kind: str, what: str, **details: Any) -> None:
        super().__init__(what)
        self.content = {"kind": kind, "what": what, **details}


def build(request: dict[str, Any]) -> dict[str, Any]:
    """Builds the plan of a request and returns the response."""
    trt = importlib.import_module(request["module"])
    logger = make_logger(trt)
    builder = make_builder(trt, logger)
    network = builder.create_network(strongly_typed_flag(trt))
    parse(trt, network, logger, Path(request["onnx"]))
    config = builder.create_builder_config()
    capabilities = set_capabilities(trt, config, request["compute_capabilities"])
    is_cache_ignored = not load_timing_cache(config, request["timing_cache"])
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise BuildError("build", logger.errors[-1] if logger.errors else "no reason given")
    Path(request["plan"]).write_bytes(plan)
    if request["timing_cache"] is not None:
        Path(request["new_timing_cache"]).write_bytes(config.get_timing_cache().serialize())
    return {
        "version": str(trt.__version__),
        "compute_capabilities": capabilities,
        "is_cache_ignored": is_cache_ignored,
    }


def make_logger(trt: Any) -> Any:
    """Returns a logger that keeps the errors."""

    class KeepErrors(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.parsed = ""

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.errors.append(message)
            elif message.startswith(_PARSING):
                self.parsed = message.removeprefix(_PARSING)

    return KeepErrors()


def make_builder(trt: Any, logger: Any) -> Any:
    """Returns a builder; classic TensorRT has none without a GPU and its driver."""
    try:
        return trt.Builder(logger)
    except Exception as error:
        told = logger.errors[-1] if logger.errors else str(error)
        raise BuildError("unavailable", told) from error


def strongly_typed_flag(trt: Any) -> int:
    """Returns the flag of a strongly typed network; 0 where that is the only kind there is.

    The version is not asked: TensorRT 10 has the flag, and what has neither the flag nor the
    builder flags of weak typing any more is strongly typed by itself (TensorRT 11).
    """
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    if flag is not None:
        return 1 << int(flag)
    if hasattr(trt.BuilderFlag, "FP16"):
        what = f"TensorRT {trt.__version__} has no strongly typed networks; 10 or newer has"
        raise BuildError("unavailable", what)
    return 0


def parse(trt: Any, network: Any, logger: Any, onnx: Path) -> None:
    """Parses the ONNX file into the network."""
    parser = trt.OnnxParser(network, logger)
    if parser.parse(onnx.read_bytes()):
        return
    if parser.num_errors == 0:
        raise BuildError("parse", logger.errors[-1] if logger.errors else "no reason given")
    error = parser.get_error(0)
    code = str(error.code()).rpartition(".")[2]
    node, operator = error.node_name(), error.node_operator()
    if not node:  # Some importers do not say; the node that was begun last is theirs.
        node, _, operator = logger.parsed.removesuffix("]").rpartition(" [")
    raise BuildError(
        "parse",
        error.desc(),
        code=code,
        node=node,
        operator=operator,
    )


def set_capabilities(trt: Any, config: Any, wanted: list[int]) -> list[int]:
    """Sets the GPUs to build for and returns them."""
    if not hasattr(config, "set_compute_capability"):
        here = read_gpu()
        if wanted and wanted != [here]:
            what = f"this TensorRT builds for the GPU in the machine, which is {here}"
            raise BuildError("capability", what, known=[here])
        return [here]
    kinds = trt.ComputeCapability
    known = sorted(int(name[2:]) for name in dir(kinds) if name[:2] == "SM" and name[2:].isdigit())
    for value in wanted:
        if value not in known:
            raise BuildError("capability", f"it does not build for {value}", known=known)
    config.num_compute_capabilities = len(wanted)
    for index, value in enumerate(wanted):
        if not config.set_compute_capability(getattr(kinds, f"SM{value}"), index):
            raise BuildError("capability", f"it refused {value}", known=known)
    return wanted


def read_gpu() -> int:
    """Returns the compute capability of the first GPU, as 86 for 8.6."""
    try:
        from cuda.bindings import runtime
    except ImportError as error:
        what = "the Python package cuda-bindings is missing, which tells the GPU's kind"
        raise BuildError("unavailable", what) from error
    kinds = runtime.cudaDeviceAttr
    digits = []
    for kind in (kinds.cudaDevAttrComputeCapabilityMajor, kinds.cudaDevAttrComputeCapabilityMinor):
        status, value = runtime.cudaDeviceGetAttribute(kind, 0)
        if status != runtime.cudaError_t.cudaSuccess:
            raise BuildError("unavailable", f"no GPU can be asked: {status.name}")
        digits.append(int(value))
    return 10 * digits[0] + digits[1]


def load_timing_cache(config: Any, path: str | None) -> bool:
    """Gives the builder the timings of earlier builds, if a file is named.

    Returns:
        whether they could be used: those of another TensorRT or GPU, and half a file, are replaced
        by an empty cache, which the build fills.
    """
    if path is None:
        return True
    file = Path(path)
    content = file.read_bytes() if file.exists() else b""
    for known in (content, b""):
        cache = create_timing_cache(config, known)
        if cache is not None and config.set_timing_cache(cache, ignore_mismatch=False):
            return known == content
    raise BuildError("build", "an empty timing cache was refused")


def create_timing_cache(config: Any, content: bytes) -> Any:
    """Returns a timing cache, None where TensorRT cannot read the content."""
    try:
        return config.create_timing_cache(content)
    except (RuntimeError, TypeError, ValueError):
        return None


def main(request: Path, response: Path) -> None:
    """Answers a request file with a response file."""
    try:
        answer = build(json.loads(request.read_text(encoding="utf-8")))
    except BuildError as error:
        answer = {"error": error.content}
    response.write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
