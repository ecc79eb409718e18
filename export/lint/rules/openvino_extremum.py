"""OpenVINO miscomputes quantizers behind a maximum or minimum over an axis."""

from collections.abc import Iterator

from artifacts.openvino_extrema import EXTREMA
from export.lint.finding import WRONG, Finding
from export.lint.graph import QUANTIZE, LintGraph
from export.lint.rule import Rule
from export.lint.rules.openvino_moves import find_maker
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields Q that follow an extremum."""
    for node in graph.of(QUANTIZE):
        maker = find_maker(graph, node.input[0])
        if maker is not None and maker.op_type in EXTREMA:
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=f"{maker.name} -> {node.name or node.output[0]}",
                what=f"a quantizer behind {maker.op_type}",
                why=f"{target.title} fuses the two and computes other integers",
                fix="keep the layers that read it in float; compress quantize does",
            )


RULE = Rule(
    name="openvino-extremum",
    severities=(WRONG,),
    targets=("openvino",),
    summary="Q behind GlobalMaxPool, ReduceMax or ReduceMin, which OpenVINO 2026.4 miscomputes",
    check=check,
)
