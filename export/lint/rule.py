"""What a rule is: a name, the targets it holds for, and a function from a graph to findings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from export.lint.finding import Finding
from export.lint.graph import LintGraph
from export.lint.target import Target

Check = Callable[[LintGraph, Target], Iterator[Finding]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule.

    Attributes:
        name: kebab-case; in every finding.
        severities: what it may report.
        targets: names of the targets that it holds for.
        summary: what it looks for, for the documentation's table.
        check: yields the findings of a graph.
        looks_inside: whether it holds for the graphs in If, Loop and Scan as well, each of which
            `check` is given then.
    """

    name: str
    severities: tuple[str, ...]
    targets: tuple[str, ...]
    summary: str
    check: Check
    looks_inside: bool = False


TENSORRT = ("tensorrt-10", "tensorrt-11", "tensorrt-rtx")
"""The targets of the rules that hold for every TensorRT."""
