"""Networks whose refusal OpenVINO does not live to tell.

OpenVINO (seen with 2026.4) crashes, and Python with it, where it converts a Clip without one of its
bounds behind an operator that it has no conversion for: it means to name the operator, but asks
what type the Clip's input has. PyTorch writes such Clips for `clamp(min=...)` and `F.normalize`. So
a network with one is read without it first, which names the operator; only then as it is.
"""

from pathlib import Path
from typing import Any

import onnx

from artifacts.graph_checks import iter_nodes

_BOUNDED_INPUTS = 3


def read_openvino(core: Any, path: Path) -> Any:
    """Returns what `core.read_model` makes of an ONNX file, or raises what it says against it.

    Args:
        core: an `openvino.Core`.
        path: the file.
    """
    if b"Clip" in path.read_bytes():
        _try_without_clips(core, onnx.load(path, load_external_data=False))
    return core.read_model(str(path))


def read_openvino_model(core: Any, model: onnx.ModelProto) -> Any:
    """Returns what `core.read_model` makes of a model, as `read_openvino` does of a file."""
    _try_without_clips(core, model)
    return core.read_model(model.SerializeToString())


def _try_without_clips(core: Any, model: onnx.ModelProto) -> None:
    """Reads a model whose open Clips are Identities; one with weights in other files is not read.

    Raises:
        Exception: OpenVINO's, if it refuses anything else.
    """
    is_whole = all(tensor.data_location == tensor.DEFAULT for tensor in model.graph.initializer)
    if not is_whole or not any(map(_is_open, _all_nodes(model))):
        return
    trial = onnx.ModelProto()
    trial.CopyFrom(model)
    for node in _all_nodes(trial):
        if _is_open(node):
            node.op_type = "Identity"
            del node.input[1:], node.attribute[:]
    core.read_model(trial.SerializeToString())


def _all_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    own = [node for function in model.functions for node in iter_nodes(function.node)]
    return [*iter_nodes(model.graph.node), *own]


def _is_open(node: onnx.NodeProto) -> bool:
    """Whether a node is a Clip without a minimum or without a maximum."""
    is_bounded = len(node.input) == _BOUNDED_INPUTS and all(node.input[1:])
    has_attributes = {item.name for item in node.attribute} == {"min", "max"}
    return node.op_type == "Clip" and not is_bounded and not has_attributes
