"""Turns a module into the ONNX model that a clock can time, without leaving a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto
    from torch import nn


def export_module(
    module: "nn.Module",
    shapes: Mapping[str, tuple[int, ...]],
    integers: "Mapping[str, NDArray] | None" = None,
) -> "ModelProto":
    """Exports a module.

    Args:
        module: left as it is.
        shapes: of the inputs, by name.
        integers: values of the inputs that are integers, by name.
    """
    from artifacts.onnx_file import load_onnx
    from export.to_onnx import export_onnx

    with TemporaryDirectory(prefix="framefit-module-") as folder:
        path = Path(folder, "model.onnx")
        export_onnx(module, path, input_shape=dict(shapes), integers=integers)
        return load_onnx(path)


@dataclass(frozen=True)
class Exporter:
    """Exports modules as they will run: in float, or in INT8 with ranges good enough to be timed.

    Attributes:
        shapes: of the inputs, by name.
        runtime: where they will run, whose placement INT8 has.
        samples: for the ranges of INT8: arrays by the input's name, the batch axis included. Empty
            exports in float.
    """

    shapes: Mapping[str, tuple[int, ...]]
    runtime: str
    samples: "Sequence[Mapping[str, NDArray]]" = ()

    def __call__(self, module: "nn.Module") -> "ModelProto":
        """Returns a module as the ONNX model that is timed."""
        model = export_module(module, self.shapes)
        if not self.samples:
            return model
        from compress.quantize.api import quantize_model
        from compress.quantize.observers import MinMax
        from compress.quantize.settings import QuantizeSettings

        settings = QuantizeSettings(
            target=self.runtime,
            observer=MinMax(),
            equalization=False,
            bias_correction=False,
            input_correction=False,
        )
        return quantize_model(model, [dict(sample) for sample in self.samples], settings).model
