"""Builds networks with TensorRT-RTX and tells which kernels it made; no GPU is needed."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import onnx


def has_rtx() -> bool:
    """Tells whether TensorRT-RTX is installed."""
    return importlib.util.find_spec("tensorrt_rtx") is not None


class KernelBuilder:
    """A process that builds, one for all networks: to load the library takes longer than to build.

    Calling it with a network returns what became of it, see `rtx_worker.build`.
    """

    def __enter__(self) -> Self:
        command = [sys.executable, str(Path(__file__).with_name("rtx_worker.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __call__(self, model: onnx.ModelProto) -> dict[str, Any]:
        """Builds a network.

        Raises:
            RuntimeError: TensorRT-RTX crashed.
        """
        content = model.SerializeToString()
        source, answers = self._process.stdin, self._process.stdout
        assert source is not None
        assert answers is not None
        source.write(len(content).to_bytes(8, "little") + content)
        source.flush()
        line = answers.readline()
        if not line:
            raise RuntimeError("TensorRT-RTX crashed")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()
