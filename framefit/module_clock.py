"""Times modules in the form in which they run: what `compress substitute` measures with."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError
from framefit.exported_module import Exporter
from framefit.network_clock import RUNTIMES, NetworkClock

if TYPE_CHECKING:
    from torch import nn


class ModuleClock:
    """Times modules side by side: exported, and quantized where asked for.

    Args:
        shapes: of the inputs, by name.
        samples: for the ranges of INT8; empty times them in float.
        runtime: one of `RUNTIMES`, whose placement is used too.

    Attributes:
        export: makes the ONNX models that are timed.
    """

    def __init__(
        self, shapes: Mapping[str, Sequence[int]], samples: Sequence[Any], runtime: str
    ) -> None:
        if runtime not in RUNTIMES:
            raise InputError(f"the runtime is '{runtime}'", f"one of {', '.join(RUNTIMES)}")
        self.export = Exporter(
            {name: tuple(shape) for name, shape in shapes.items()},
            runtime,
            [{name: sample[name][None] for name in shapes} for sample in samples],
        )
        self._clock = NetworkClock(runtime)

    def __call__(self, modules: "Sequence[nn.Module]") -> list[float]:
        """Returns each module's latency in ms, see `NetworkClock`."""
        return self._clock([self.export(module) for module in modules])
