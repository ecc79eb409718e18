"""Inputs without a fixed shape."""

from collections.abc import Iterator

from artifacts.onnx_inputs import suggest_shape
from export.lint.finding import ERROR, INFO, Finding
from export.lint.graph import LintGraph
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target


def find_dynamic_inputs(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields one finding per input with a dimension that is not a number."""
    for value in graph.inputs:
        dims = value.type.tensor_type.shape.dim
        if all(dim.HasField("dim_value") and dim.dim_value > 0 for dim in dims):
            continue
        sizes = [dim.dim_value for dim in dims]
        shown = ", ".join(str(dim.dim_param or dim.dim_value or "?") for dim in dims)
        yield Finding(
            rule=RULE.name,
            severity=ERROR if target.is_tensorrt else INFO,
            place=value.name,
            what=f"the shape [{shown}]",
            why=(
                f"{target.title} would need an optimization profile; a plan built here has none"
                if target.is_tensorrt
                else f"{target.title} may take it; the other rules need numbers"
            ),
            fix=f"fix it with --input-shape {value.name}={suggest_shape(sizes)}",
        )


RULE = Rule(
    name="dynamic-input",
    severities=(ERROR, INFO),
    targets=TENSORRT,
    summary="inputs with dimensions that are no numbers",
    check=find_dynamic_inputs,
)
