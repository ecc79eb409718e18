"""Rules that turn calibration data into a tensor's range."""

from compress.quantize.observers.by_output_error import ByOutputError
from compress.quantize.observers.contract import ObservedTensor, Observer
from compress.quantize.observers.entropy import Entropy
from compress.quantize.observers.min_max import MinMax
from compress.quantize.observers.mse import MeanSquaredError
from compress.quantize.observers.percentile import Percentile

OBSERVERS: dict[str, type[Observer]] = {
    "minmax": MinMax,
    "percentile": Percentile,
    "mse": MeanSquaredError,
    "entropy": Entropy,
    "auto": ByOutputError,
}

__all__ = [
    "OBSERVERS",
    "ByOutputError",
    "Entropy",
    "MeanSquaredError",
    "MinMax",
    "ObservedTensor",
    "Observer",
    "Percentile",
]
