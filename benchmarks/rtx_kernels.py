"""Builds networks with TensorRT-RTX and tells which kernels it made; no GPU is needed."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx

KernelBuilder = Callable[[onnx.ModelProto], dict[str, Any]]
"""Returns what became of a network, see `rtx_worker.build`."""


def has_rtx() -> bool:
    """Tells whether TensorRT-RTX is installed."""
    return importlib.util.find_spec("tensorrt_rtx") is not None


@contextmanager
def open_builder() -> Iterator[KernelBuilder]:
    """Gives one process that builds all networks: loading the library takes longer than building.

    Raises:
        RuntimeError: when a network is built, and TensorRT-RTX crashes.
    """
    command = [sys.executable, str(Path(__file__).with_name("rtx_worker.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        source, answers = process.stdin, process.stdout
        assert source is not None
        assert answers is not None

        def build(model: onnx.ModelProto) -> dict[str, Any]:
            content = model.SerializeToString()
            source.write(len(content).to_bytes(8, "little") + content)
            source.flush()
            line = answers.readline()
            if not line:
                raise RuntimeError("TensorRT-RTX crashed")
            answer: dict[str, Any] = json.loads(line)
            return answer

        yield build
        process.communicate()
