"""Judges quantized files: their outputs on held-out pictures, and their speed on a runtime."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.interleaved import time_sessions
from compress.compare import compare_outputs
from engines.session import TensorInfo, check_feeds

if TYPE_CHECKING:
    from benchmarks.peers.cases import Feeds  # imports torch, for which each process would wait

OPENVINO, ONNXRUNTIME = "openvino", "onnxruntime"
TITLES = {OPENVINO: "OpenVINO", ONNXRUNTIME: "onnxruntime"}
THREADS = 2
PROCESSES = 3
_COMPILE = "--compile"
_COMMAND = (sys.executable, "-m", "benchmarks.peers.judge")
_DTYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8", "tensor(int64)": "int64"}
_KEYS = ("sqnr_db", "sqnr_mean_db")

Run = Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]


class OpenVinoFile:
    """A file on OpenVINO's CPU plugin, f32 where it is not INT8; also `.xml`, its own format.

    Attributes:
        inputs: shape and type of each input.
    """

    def __init__(self, path: Path) -> None:
        import openvino

        core = openvino.Core()
        model = core.read_model(path)
        compiled = core.compile_model(
            model,
            "CPU",
            {
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "f32",
                "INFERENCE_NUM_THREADS": THREADS,
            },
        )
        self.inputs = tuple(
            TensorInfo(port.get_any_name(), tuple(port.shape), port.get_element_type().to_dtype())
            for port in model.inputs
        )
        self._outputs = list(compiled.outputs)
        self._request = compiled.create_infer_request()

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Runs the network once; an output goes by each of its names."""
        return {name: value.copy() for name, value in self.run_borrowed(feeds).items()}

    def run_borrowed(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Like `run`; the next run overwrites what it returns."""
        arrays = check_feeds(self.inputs, feeds)
        self._request.infer(arrays, share_inputs=True, share_outputs=True)
        count = len(self._outputs)
        values = [self._request.get_output_tensor(index).data for index in range(count)]
        return {
            name: value
            for port, value in zip(self._outputs, values, strict=True)
            for name in port.names
        }


class OnnxRuntimeFile:
    """A file on onnxruntime's CPU provider with all that it does by default.

    But its threads rest between inferences: they would take a processor from the next file.

    Attributes:
        inputs: shape and type of each input.
    """

    def __init__(self, path: Path, *, is_optimized: bool = True) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = THREADS
        options.add_session_config_entry("session.force_spinning_stop", "1")
        if not is_optimized:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = tuple(
            TensorInfo(item.name, tuple(item.shape), np.dtype(_DTYPES[item.type]))
            for item in self._session.get_inputs()
        )
        self._outputs = [item.name for item in self._session.get_outputs()]

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Runs the network once."""
        return dict(zip(self._outputs, self._session.run(None, dict(feeds)), strict=True))

    def run_borrowed(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Like `run`."""
        return self.run(feeds)


_FILES = {OPENVINO: OpenVinoFile, ONNXRUNTIME: OnnxRuntimeFile}


def measure_quality(
    reference: Path,
    candidates: Mapping[str, Path],
    feeds: "list[Feeds]",
    runtime: str = OPENVINO,
) -> dict[str, dict[str, Any]]:
    """Compares each candidate's outputs with the float network's, both on the same runtime.

    Args:
        reference: the float network.
        candidates: file per name.
        feeds: the held-out pictures.
        runtime: a key of `TITLES`.

    Returns:
        per name {"said": ..., "run": ...}, each {output: {"sqnr_db", "sqnr_mean_db"}} or
        {"failure"}: `said` is onnxruntime without any optimization, which computes what the file
        says, and `run` is the runtime, which computes what a user gets.
    """
    expected_said = _remember(_said(reference), feeds)
    open_file = _FILES[runtime]
    outputs = tuple(expected_said[0])
    expected_run = _remember(open_file(reference).run, feeds)
    quality: dict[str, dict[str, Any]] = {}
    for name, path in candidates.items():
        said = {"failure": "not ONNX"}
        if path.suffix == ".onnx":
            said = _compare(expected_said, lambda path=path: _said(path), feeds, outputs)
        run = find_crash(path, runtime) or _compare(
            expected_run, lambda path=path: open_file(path).run, feeds, outputs
        )
        quality[name] = {"said": said, "run": run}
    return quality


def find_crash(path: Path, runtime: str = OPENVINO) -> dict[str, Any]:
    """Opens a file in a process of its own, since some end OpenVINO's with a signal.

    Returns:
        {"failure"}; empty where the process lived.
    """
    command = [*_COMMAND, runtime, _COMPILE, str(path.resolve())]
    code = subprocess.run(command, capture_output=True).returncode
    return {"failure": f"signal {-code} when it is compiled"} if code < 0 else {}


def measure_latency(
    files: Mapping[str, Path], rounds: int, runtime: str = OPENVINO
) -> dict[str, dict[str, Any]]:
    """Times all files in turn, in `PROCESSES` processes one after the other.

    Returns:
        per name {"min_ms", "cpu_ms": the smallest of all, "p50_ms": per process}.
    """
    command = [*_COMMAND, runtime, str(rounds)]
    text = json.dumps({name: str(path) for name, path in files.items()})
    runs = [
        json.loads(
            subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE, text=True)
            .stdout.strip()
            .splitlines()[-1]
        )
        for _ in range(PROCESSES)
    ]
    return {
        name: {
            "min_ms": min(run[name]["min_ms"] for run in runs),
            "cpu_ms": min(run[name]["cpu_ms"] for run in runs),
            "p50_ms": [run[name]["p50_ms"] for run in runs],
        }
        for name in files
    }


def _compare(
    expected: list[Mapping[str, NDArray[Any]]],
    open_candidate: Callable[[], Run],
    feeds: "list[Feeds]",
    outputs: tuple[str, ...],
) -> dict[str, Any]:
    positions = iter(range(len(feeds)))

    def recall(_: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        values = expected[next(positions)]
        return {name: values[name] for name in outputs}

    try:
        figures = compare_outputs(recall, open_candidate(), feeds)["outputs"]
    except Exception as error:
        return {"failure": str(error).strip().splitlines()[0][:200]}
    return {name: {key: value[key] for key in _KEYS} for name, value in figures.items()}


def _remember(run: Run, feeds: "list[Feeds]") -> list[Mapping[str, NDArray[Any]]]:
    return [run(item) for item in feeds]


def _said(path: Path) -> Run:
    return OnnxRuntimeFile(path, is_optimized=False).run


def _main() -> None:
    runtime, what, *paths = sys.argv[1:]
    if what == _COMPILE:
        _FILES[runtime](Path(paths[0]))
        return
    files = json.load(sys.stdin)
    sessions = {name: _FILES[runtime](Path(path)) for name, path in files.items()}
    print(json.dumps(time_sessions(sessions, int(what))))


if __name__ == "__main__":
    _main()
