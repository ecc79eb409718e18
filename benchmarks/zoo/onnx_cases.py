"""`python -m benchmarks.zoo.onnx_cases`: lint against TensorRT-RTX on ONNX's own operator tests.

ONNX ships a graph for nearly every operator and attribute. Each is linted for TensorRT-RTX and
built with it, and the two answers are compared. Builds run in a child, which is started again where
a graph crashes it.
"""

import json
import multiprocessing
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import onnx

from artifacts.atomic import write_json
from export.lint import lint_model

RAW = Path("out/zoo/onnx_cases.json")
LARGEST_BYTES = 20_000_000
CAPABILITY = "SM89"


def main() -> None:
    """Compares all cases, keeps where the two differ, and prints the counts."""
    figures = compare_cases()
    write_json(RAW, figures)
    print(json.dumps({key: value for key, value in figures.items() if key != "differences"}))


def compare_cases(step: int = 1) -> dict[str, Any]:
    """Returns the counts and every case on which lint and TensorRT-RTX differ.

    Args:
        step: takes every which case.
    """
    counts = dict.fromkeys(("cases", "built", "agreed", "missed", "refused_but_built"), 0)
    differences = []
    with Builder() as builder:
        for name, model in list(read_cases())[::step]:
            report = lint_model(model, target="tensorrt-rtx")
            is_built = builder.build(model.SerializeToString())
            counts["cases"] += 1
            counts["built"] += is_built
            counts["agreed"] += is_built == report.is_buildable
            counts["missed"] += report.is_buildable and not is_built
            counts["refused_but_built"] += is_built and not report.is_buildable
            if is_built != report.is_buildable:
                whats = [item.what for item in report.findings if item.severity == "error"]
                differences.append({"case": name, "is_built": is_built, "errors": whats})
    return {**counts, "differences": differences}


def read_cases() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yields ONNX's operator tests, those with large constants left out."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if case.model is not None and case.model.ByteSize() < LARGEST_BYTES:
            yield case.name, case.model


class Builder:
    """A child process that builds models; use it as a context manager."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._connection: Any = None

    def __enter__(self) -> "Builder":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.join()

    def build(self, content: bytes) -> bool:
        """Returns whether the model builds; a crash counts as no."""
        if self._process is None:
            self._connection, other = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(other,))
            self._process.start()
            other.close()
        self._connection.send_bytes(content)
        try:
            return bool(self._connection.recv())
        except EOFError:
            self._process.join()
            self._process = None
            return False


def _serve(connection: Connection) -> None:
    while True:
        try:
            content = connection.recv_bytes()
        except EOFError:
            return
        connection.send(_is_built(content))


def _is_built(content: bytes) -> bool:
    import tensorrt_rtx as trt

    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(content):
        return False
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, CAPABILITY), 0)
    return builder.build_serialized_network(network, config) is not None


if __name__ == "__main__":
    main()
