"""How important a channel group is, by several methods."""

from compress.prune.importance.activation import score_by_activation
from compress.prune.importance.contract import ImportanceData, Scorer
from compress.prune.importance.gradient import score_by_fisher, score_by_taylor
from compress.prune.importance.weights import score_by_batch_norm, score_by_magnitude

IMPORTANCES: dict[str, Scorer] = {
    "fisher": score_by_fisher,
    "taylor": score_by_taylor,
    "activation": score_by_activation,
    "magnitude": score_by_magnitude,
    "bn-scale": score_by_batch_norm,
}
NEED_DATA = ("fisher", "taylor", "activation")

__all__ = ["IMPORTANCES", "NEED_DATA", "ImportanceData", "Scorer"]
