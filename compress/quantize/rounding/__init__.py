"""Rules that round weights to integers."""

from compress.quantize.rounding.contract import Rounding, RoundingProblem
from compress.quantize.rounding.nearest import Nearest

ROUNDINGS: dict[str, type[Rounding]] = {"nearest": Nearest}

__all__ = ["ROUNDINGS", "Nearest", "Rounding", "RoundingProblem"]
