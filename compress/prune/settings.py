"""How to prune."""

from dataclasses import dataclass, field

from artifacts.errors import InputError
from compress.prune.importance import IMPORTANCES
from compress.prune.select import WidthLimits


@dataclass(frozen=True, kw_only=True)
class PruneSettings:
    """How to prune.

    Attributes:
        importance: a key of `IMPORTANCES`.
        ranking: "global" or "isomorphic", see `rank_scores`.
        limits: which widths feature maps may get.
        protect: modules whose outputs stay whole.
        steps: in how many steps channels leave; importance is found anew before each.
        stop_below_db: a step after which any output's SQNR falls below this is taken back, and
            pruning ends; None never stops.
        threads: with which PyTorch follows, weighs and proves the network; 0: its own number.
    """

    importance: str = "fisher"
    ranking: str = "global"
    limits: WidthLimits = field(default_factory=WidthLimits)
    protect: tuple[str, ...] = ()
    steps: int = 1
    stop_below_db: float | None = None
    threads: int = 0

    def __post_init__(self) -> None:
        if self.importance not in IMPORTANCES:
            raise InputError(
                f"--importance is '{self.importance}'", f"one of {', '.join(IMPORTANCES)}"
            )
        if self.ranking not in ("global", "isomorphic"):
            raise InputError(f"--ranking is '{self.ranking}'", "global or isomorphic")
        if self.steps < 1:
            raise InputError(f"--steps is {self.steps}", "1 or more")
        if self.threads < 0:
            raise InputError(f"threads is {self.threads}", "1 or more, or 0")
