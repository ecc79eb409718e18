"""The settings of a quantization."""

from dataclasses import asdict, dataclass, field
from typing import Any

from artifacts.errors import InputError
from compress.quantize.observers import MeanSquaredError, Observer
from compress.quantize.placement import PLACEMENTS
from compress.quantize.rounding import Nearest, Rounding


@dataclass(frozen=True, kw_only=True)
class QuantizeSettings:
    """How to quantize.

    Attributes:
        target: the runtime whose placement is used, a key of `PLACEMENTS`.
        observer: chooses the range of each activation.
        rounding: rounds the weights.
        bias_correction: gives back, per output channel, what quantization takes from the mean.
        equalization: rescales channels between layers where that lowers the error.
        keep_float: names of nodes that stay in float.
        memory_cap_bytes: activations beyond this sum are kept on disk.
    """

    target: str = "tensorrt"
    observer: Observer = field(default_factory=MeanSquaredError)
    rounding: Rounding = field(default_factory=Nearest)
    bias_correction: bool = True
    equalization: bool = True
    keep_float: tuple[str, ...] = ()
    memory_cap_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if self.target not in PLACEMENTS:
            raise InputError(f"target is '{self.target}'", f"one of {', '.join(PLACEMENTS)}")
        if self.memory_cap_bytes < 0:
            raise InputError(f"memory_cap_bytes is {self.memory_cap_bytes}", "0 or more")

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as plain values, for the artifact's metadata."""
        values = asdict(self)
        values["observer"] = {"name": type(self.observer).__name__, **values["observer"]}
        values["rounding"] = {"name": type(self.rounding).__name__, **values["rounding"]}
        return values
