"""Proves that a frame keeps its budget: clock, samples, statistics, verdict, report."""

from latency_budget.budget import Budget, FrameBudget, HeadContract, Tier
from latency_budget.experiment import Experiment, run_experiment
from latency_budget.measure import MeasureSettings, measure_closed, measure_paced
from latency_budget.run import Run
from latency_budget.stage import Stage
from latency_budget.verdict import Gate, HeadQuality, Judgement, Verdict, judge

__all__ = [
    "Budget",
    "Experiment",
    "FrameBudget",
    "Gate",
    "HeadContract",
    "HeadQuality",
    "Judgement",
    "MeasureSettings",
    "Run",
    "Stage",
    "Tier",
    "Verdict",
    "judge",
    "measure_closed",
    "measure_paced",
    "run_experiment",
]
