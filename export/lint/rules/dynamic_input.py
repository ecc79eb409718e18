"""Inputs without a fixed shape."""

from collections.abc import Iterator, Sequence

import onnx

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
            fix=f"fix it with --input-shape {value.name}={_write_example(dims)}",
        )


def _write_example(dims: Sequence[onnx.TensorShapeProto.Dimension]) -> str:
    """Returns a shape with a batch of 1, and pictures of 360 x 640, channels first or last."""
    sizes = [dim.dim_value for dim in dims]
    usual = [1] * len(sizes)
    if len(sizes) == 4:
        is_last = bool(sizes[3] and not sizes[1])
        usual = [1, 360, 640, 3] if is_last else [1, 3, 360, 640]
    return ",".join(str(size or other) for size, other in zip(sizes, usual, strict=True))


RULE = Rule(
    name="dynamic-input",
    severities=(ERROR, INFO),
    targets=TENSORRT,
    summary="inputs with dimensions that are no numbers",
    check=find_dynamic_inputs,
)
