"""Builds the models that come in on stdin with TensorRT-RTX, a line of JSON for each.

A model is its length as 8 bytes and then its bytes. The builder prints the kernels that it made in
its log, so what it joined can be seen without a GPU.
"""

import hashlib
import json
import re
import sys
from typing import Any, BinaryIO

import tensorrt_rtx as trt

LAYER = re.compile(
    r"Name: (?P<name>.*?), LayerType: (?P<kind>\w+), Inputs: (?P<inputs>\[.*?\])"
    r"(?:, Constants: \[.*?\])?, Outputs: (?P<outputs>\[.*\])"
)


class KeepLog(trt.ILogger):
    """Keeps the errors, and the list of kernels."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.errors: list[str] = []
        self.layers = ""

    def log(self, severity: Any, message: str) -> None:
        """Is called by TensorRT for each message."""
        if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
            self.errors.append(message)
        elif message.startswith("Layers:"):
            self.layers = message


def build(content: bytes) -> dict[str, Any]:
    """Builds a serialized network for compute capability 8.9.

    Returns:
        {"is_built": False, "reason"}, or {"is_built": True, "digest", "layers"}, see `read_layers`.
    """
    log = KeepLog()
    builder = trt.Builder(log)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, log)
    if not parser.parse(content):
        return {"is_built": False, "reason": parser.get_error(0).desc()[:300]}
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        return {"is_built": False, "reason": log.errors[-1][:300] if log.errors else ""}
    digest = hashlib.sha256(bytes(plan)).hexdigest()
    return {"is_built": True, "digest": digest, "layers": read_layers(log.layers)}


def read_layers(text: str) -> list[dict[str, Any]]:
    """Returns {"kind", "inputs", "outputs", "nodes"} of each kernel in the builder's list."""
    layers = []
    for line in text.splitlines():
        found = LAYER.search(line)
        if found and found["kind"] not in ("signal", "wait"):
            layers.append(
                {
                    "kind": found["kind"],
                    "inputs": re.findall(r"Datatype: (\w+)", found["inputs"]),
                    "outputs": re.findall(r"Datatype: (\w+)", found["outputs"]),
                    "nodes": re.findall(r"ONNX Layer: ([^\]]+)\]", line),
                }
            )
    return layers


def main(source: BinaryIO) -> None:
    """Answers until the input ends."""
    while length := source.read(8):
        answer = build(source.read(int.from_bytes(length, "little")))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.stdin.buffer)
