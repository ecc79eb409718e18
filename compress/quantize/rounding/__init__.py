"""Rules that round weights to integers."""

from compress.quantize.rounding.adaround import AdaRound
from compress.quantize.rounding.auto import Auto
from compress.quantize.rounding.contract import RoundedWeights, Rounding, RoundingProblem
from compress.quantize.rounding.gptq import GPTQ
from compress.quantize.rounding.nearest import Nearest

ROUNDINGS: dict[str, type[Rounding]] = {
    "nearest": Nearest,
    "gptq": GPTQ,
    "adaround": AdaRound,
    "auto": Auto,
}

__all__ = [
    "GPTQ",
    "ROUNDINGS",
    "AdaRound",
    "Auto",
    "Nearest",
    "RoundedWeights",
    "Rounding",
    "RoundingProblem",
]
