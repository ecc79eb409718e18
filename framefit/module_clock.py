"""Times modules in the form in which they run: what `compress substitute` measures with."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError
from framefit.exported_module import export_module
from framefit.network_clock import NetworkClock

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch import nn

RUNTIMES = ("openvino", "onnxruntime")


class ModuleClock:
    """Times modules side by side: exported, and quantized where asked for.

    Args:
        shapes: of the inputs, by name.
        samples: for the ranges of INT8; empty times them in float.
        runtime: one of `RUNTIMES`, whose placement is used too.
    """

    def __init__(
        self, shapes: Mapping[str, Sequence[int]], samples: Sequence[Any], runtime: str
    ) -> None:
        if runtime not in RUNTIMES:
            raise InputError(f"the runtime is '{runtime}'", f"one of {', '.join(RUNTIMES)}")
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self._samples = samples
        self._runtime = runtime
        self._clock = NetworkClock(runtime)

    def __call__(self, modules: "Sequence[nn.Module]") -> list[float]:
        """Returns the lower quartile of each module's latency in ms, see `NetworkClock`."""
        return self._clock([self.export(module) for module in modules])

    def export(self, module: "nn.Module") -> "ModelProto":
        """Returns a module as the ONNX model that is timed."""
        from compress.quantize.api import quantize_model
        from compress.quantize.settings import QuantizeSettings

        model = export_module(module, self._shapes)
        if not self._samples:
            return model
        feeds = [{name: sample[name][None] for name in self._shapes} for sample in self._samples]
        settings = QuantizeSettings(target=self._runtime, equalization=False)
        return quantize_model(model, feeds, settings).model
