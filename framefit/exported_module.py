"""Turns a module into the ONNX model that a clock can time, without leaving a file."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch import nn


def export_module(module: "nn.Module", shapes: Mapping[str, tuple[int, ...]]) -> "ModelProto":
    """Exports a module.

    Args:
        module: left as it is.
        shapes: of the inputs, by name.
    """
    from artifacts.onnx_file import load_onnx
    from export.to_onnx import export_onnx

    with TemporaryDirectory(prefix="framefit-module-") as folder:
        return load_onnx(export_onnx(module, Path(folder, "model.onnx"), input_shape=dict(shapes)))
