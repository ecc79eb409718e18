"""Says what a runtime will refuse, misread or run slowly, without that runtime or a GPU."""

from export.lint.finding import Finding
from export.lint.report import LintReport, lint_file, lint_model
from export.lint.rules import RULES
from export.lint.target import TARGETS

__all__ = ["RULES", "TARGETS", "Finding", "LintReport", "lint_file", "lint_model"]
