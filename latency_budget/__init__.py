"""Proves that a frame keeps its budget: clock, samples, statistics, verdict, report."""

from latency_budget.budget import Budget, FrameBudget, HeadContract
from latency_budget.experiment import Experiment, Parts, run_experiment
from latency_budget.measure import MeasureSettings, measure_closed, measure_paced
from latency_budget.priority import Scheduling
from latency_budget.restarts import ProcessSettings, measure_in_processes, measure_in_turns
from latency_budget.run import Run
from latency_budget.stage import Stage
from latency_budget.tiers import Tier
from latency_budget.verdict import Gate, HeadQuality, Judgement, Verdict, judge
from latency_budget.workload import Recipe, Workload

__all__ = [
    "Budget",
    "Experiment",
    "FrameBudget",
    "Gate",
    "HeadContract",
    "HeadQuality",
    "Judgement",
    "MeasureSettings",
    "Parts",
    "ProcessSettings",
    "Recipe",
    "Run",
    "Scheduling",
    "Stage",
    "Tier",
    "Verdict",
    "Workload",
    "judge",
    "measure_closed",
    "measure_in_processes",
    "measure_in_turns",
    "measure_paced",
    "run_experiment",
]
