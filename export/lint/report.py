"""Runs the rules over a file or a model."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from artifacts.file_kind import require_file
from artifacts.onnx_file import load_before_plugins, read_as_stored
from artifacts.onnx_inputs import one_sample_shapes
from artifacts.plugin_tail import join_plugins
from artifacts.shape_inference import infer_shapes
from export.lint.finding import ERROR, SEVERITIES, WRONG, Finding
from export.lint.graph import LintGraph
from export.lint.rules import RULES
from export.lint.rules.dynamic_input import find_dynamic_inputs
from export.lint.target import DEFAULT_TARGET, Target, find_target


@dataclass(frozen=True, kw_only=True)
class LintReport:
    """All findings of one graph for one target, the gravest first.

    Attributes:
        target: the target's name.
        findings: as the rules gave them.
        nodes: how many nodes the graph has.
        unchecked: why the rules could not look at the graph; empty where they did.
    """

    target: str
    findings: tuple[Finding, ...]
    nodes: int
    unchecked: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """How many findings there are of each severity."""
        counted = Counter(finding.severity for finding in self.findings)
        return {severity: counted[severity] for severity in SEVERITIES}

    @property
    def is_buildable(self) -> bool:
        """Whether nothing was found that the target refuses."""
        return self.counts[ERROR] == 0

    @property
    def is_passed(self) -> bool:
        """Whether the target builds it and computes what the file says."""
        return self.is_buildable and self.counts[WRONG] == 0

    @property
    def traffic_bytes(self) -> int:
        """Memory traffic per inference that the findings cost, an estimate."""
        return sum(finding.traffic_bytes for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        return {
            "target": self.target,
            "nodes": self.nodes,
            "counts": self.counts,
            "is_buildable": self.is_buildable,
            "traffic_bytes": self.traffic_bytes,
            "unchecked": self.unchecked,
            "findings": [asdict(finding) for finding in self.findings],
        }


def lint_file(
    path: Path | str,
    *,
    target: str = DEFAULT_TARGET,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> LintReport:
    """Checks an ONNX file as `export trt` would build it.

    Inputs that are dynamic elsewhere than in their batch and have no given shape are a finding of
    their own, and the only one then: most rules need shapes.

    Args:
        path: the `.onnx` file.
        target: a key of `TARGETS`.
        input_shapes: shapes for dynamic inputs; the name "" stands for the only input.

    Returns:
        the report.

    Raises:
        InputError: the file is no valid model, or there is no such target.
    """
    from export.parser_forms import write_for_parser  # These forms read graphs as the rules do.

    known = find_target(target)
    source = require_file(path, "an ONNX model")
    if not input_shapes:
        dynamic = _find_dynamic(source, known)
        if dynamic is not None:
            return dynamic
    model, plugins = load_before_plugins(source, input_shapes=dict(input_shapes or {}))
    if known.is_tensorrt:
        model = write_for_parser(model)
    return lint_model(join_plugins(model, plugins), target=target)


def _find_dynamic(path: Path, target: Target) -> LintReport | None:
    model = read_as_stored(path)
    if all(0 not in shape for shape in one_sample_shapes(model).values()):
        return None
    graph = LintGraph(model)
    findings = tuple(find_dynamic_inputs(graph, target))
    unchecked = "shapes are not known; give them with --input-shape to have the rest checked"
    return LintReport(
        target=target.name, findings=findings, nodes=len(graph.nodes), unchecked=unchecked
    )


def lint_model(model: onnx.ModelProto, *, target: str = DEFAULT_TARGET) -> LintReport:
    """Runs the rules of a target over a model.

    Args:
        model: in topological order; it is not changed.
        target: a key of `TARGETS`.

    Returns:
        the report.

    Raises:
        InputError: there is no such target.
    """
    known = find_target(target)
    graph = LintGraph(infer_shapes(model))
    inner = tuple(graph.inner_graphs())
    findings = dict.fromkeys(
        finding
        for rule in RULES.values()
        if known.name in rule.targets
        for part in (graph, *(inner if rule.looks_inside else ()))
        for finding in rule.check(part, known)
    )
    gravest_first = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
    return LintReport(target=known.name, findings=tuple(gravest_first), nodes=len(graph.nodes))
