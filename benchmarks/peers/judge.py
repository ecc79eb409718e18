"""Judges quantized files: their outputs on held-out pictures, and their speed on OpenVINO."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from benchmarks.interleaved import time_sessions
from benchmarks.peers.cases import Feeds
from compress.compare import compare_outputs
from engines.session import TensorInfo, check_feeds

THREADS = 2
PROCESSES = 3
_COMPILE = "--compile"
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


def measure_quality(
    reference: Path, candidates: Mapping[str, Path], feeds: list[Feeds]
) -> dict[str, dict[str, Any]]:
    """Compares each candidate's outputs with the float network's, both on the same runtime.

    Args:
        reference: the float network.
        candidates: file per name.
        feeds: the held-out pictures.

    Returns:
        per name {"said": ..., "run": ...}, each {output: {"sqnr_db", "sqnr_mean_db"}} or
        {"failure"}: `said` is onnxruntime without any optimization, which computes what the file
        says, and `run` is OpenVINO, which computes what a user gets.
    """
    expected_said = _remember(_said(reference), feeds)
    openvino_reference = OpenVinoFile(reference)
    outputs = tuple(expected_said[0])
    expected_run = _remember(openvino_reference.run, feeds)
    quality: dict[str, dict[str, Any]] = {}
    for name, path in candidates.items():
        said = {"failure": "not ONNX"}
        if path.suffix == ".onnx":
            said = _compare(expected_said, lambda path=path: _said(path), feeds, outputs)
        run = find_crash(path) or _compare(
            expected_run, lambda path=path: OpenVinoFile(path).run, feeds, outputs
        )
        quality[name] = {"said": said, "run": run}
    return quality


def find_crash(path: Path) -> dict[str, Any]:
    """Compiles a file in a process of its own, since some end OpenVINO's with a signal.

    Returns:
        {"failure"}; empty where the process lived.
    """
    command = [sys.executable, "-m", "benchmarks.peers.judge", _COMPILE, str(path.resolve())]
    code = subprocess.run(command, capture_output=True).returncode
    return {"failure": f"signal {-code} when it is compiled"} if code < 0 else {}


def measure_latency(files: Mapping[str, Path], rounds: int) -> dict[str, dict[str, Any]]:
    """Times all files in turn, in `PROCESSES` processes one after the other.

    Returns:
        per name {"min_ms", "cpu_ms": the smallest of all, "p50_ms": per process}.
    """
    command = [sys.executable, "-m", "benchmarks.peers.judge", str(rounds)]
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
    feeds: list[Feeds],
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


def _remember(run: Run, feeds: list[Feeds]) -> list[Mapping[str, NDArray[Any]]]:
    return [run(item) for item in feeds]


def _said(path: Path) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, dict(feeds)), strict=True))


def _main() -> None:
    if sys.argv[1] == _COMPILE:
        OpenVinoFile(Path(sys.argv[2]))
        return
    files = json.load(sys.stdin)
    sessions = {name: OpenVinoFile(Path(path)) for name, path in files.items()}
    print(json.dumps(time_sessions(sessions, int(sys.argv[1]))))


if __name__ == "__main__":
    _main()
