"""The work of `framefit fit`: a network and a budget in, the network that keeps it out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.atomic import write_json
from artifacts.digest import sha256_file
from artifacts.errors import InputError, UnavailableError
from framefit.budget_job import read_check_settings
from framefit.fit_ladder import Fitted, climb
from framefit.fit_workshop import FitSettings, FitWorkshop
from latency_budget.budget import Budget
from latency_budget.gate import Verdict
from latency_budget.report import NETWORK_STAGE, Report

Progress = Callable[[str, int, int], None]
REPORT = "fit.json"


@dataclass(frozen=True, kw_only=True)
class FitOutcome:
    """What `fit_file` made.

    Attributes:
        limit_ms: what the budget leaves for the network's P99.
        fitted: the networks that were tried.
        quality: by artifact: per output SQNR in dB and agreement with the float network, and per
            head its metric where there are labels.
    """

    limit_ms: float
    fitted: Fitted
    quality: Mapping[Path, dict[str, Any]]

    @property
    def report(self) -> Report | None:
        """The check of the network that was taken, or of the last that was judged."""
        last = self.fitted.chosen or (self.fitted.tried[-1] if self.fitted.tried else None)
        return last.report if last is not None else None

    @property
    def exit_code(self) -> int:
        """That of the network's verdict; where none was taken, of why.

        1 where none keeps the budget, 3 where too few frames were measured to tell, 4 where this
        machine could not.
        """
        if self.fitted.chosen is not None:
            return self.fitted.chosen.report.verdict.exit_code
        if self.fitted.is_undecided:
            return UnavailableError.exit_code
        return Verdict.INCONCLUSIVE.exit_code if self.fitted.is_inconclusive else 1

    def to_dict(self) -> dict[str, Any]:
        """Returns the outcome as `fit.json` holds it."""
        chosen = self.fitted.chosen
        return {
            "limit_ms": self.limit_ms,
            "chosen": None if chosen is None else str(chosen.artifact),
            "sha256": None if chosen is None else sha256_file(chosen.artifact),
            "tried": [
                {
                    "name": item.name,
                    "artifact": str(item.artifact),
                    "back_to_back_ms": item.latency_ms,
                    "network_ms": item.report.variants[-1].network_ms,
                    "p99_upper_ms": item.bound_ms,
                    "keeps": item.keeps,
                    "verdict": item.report.verdict.value,
                    **self.quality[item.artifact],
                }
                for item in self.fitted.tried
            ],
            "notes": list(self.fitted.notes),
        }


def fit_file(
    settings: FitSettings,
    progress: Progress | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> FitOutcome:
    """Finds the network that keeps a budget and loses least, and writes it with its report.

    Args:
        settings: what to fit, and to what.
        progress: is told (what, done, total).
        tell: is told, in a line each, what is tried next and why it was left.

    Raises:
        InputError: a file, the data or an option is not usable.
    """
    from latency_budget.reports import write_report

    check = read_check_settings(
        settings.budget,
        tier=settings.tier,
        frames=settings.frames,
        environment=settings.environment,
        policy="fifo",
        warmup_frames=90,
        timeout_s=settings.timeout_s,
        mode=None,
    )
    budget = check.budget
    limit_ms = find_limit(budget)
    if settings.labels is not None and not budget.heads:
        raise InputError("--labels was given, and the budget limits no head", "[heads.NAME] tables")
    workshop = FitWorkshop(settings, check, progress, tell)
    fitted = climb(workshop, limit_ms)
    outcome = FitOutcome(limit_ms=limit_ms, fitted=fitted, quality=workshop.quality)
    if outcome.report is not None:
        write_report(outcome.report, settings.out)
    write_json(settings.out / REPORT, outcome.to_dict())
    return outcome


def find_limit(budget: Budget) -> float:
    """Returns what a budget leaves for the network's P99, in ms."""
    part = budget.for_part((NETWORK_STAGE,))
    return min([part.frame.deadline_ns / 1e6, *part.stages.values()])
