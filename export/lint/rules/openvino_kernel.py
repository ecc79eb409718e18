"""OpenVINO miscomputes some convolutions in integers."""

from collections.abc import Iterator

from artifacts.openvino_kernels import miscomputes_conv
from export.lint.finding import WRONG, Finding
from export.lint.graph import LintGraph
from export.lint.rule import Rule
from export.lint.target import Target


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields INT8 Convs whose kernel, stride and channels lead to a wrong kernel."""
    for node in graph.of("Conv"):
        names = (node.input[0], node.input[1], node.output[0])
        data, weight, result = (graph.shape(name) for name in names)
        if not (data and weight and result) or not graph.is_integer_layer(node):
            continue
        if miscomputes_conv(node, data, weight, result):
            yield Finding(
                rule=RULE.name,
                severity=WRONG,
                place=node.name or node.output[0],
                what=f"an INT8 kernel {weight[-1]} wide of {weight[1]} channels",
                why=f"{target.title} reads its weights in another order than it stored them, on "
                "processors with AMX",
                fix="keep it in float; compress quantize does",
            )


RULE = Rule(
    name="openvino-kernel",
    severities=(WRONG,),
    targets=("openvino",),
    summary="INT8 Convs of few channels with wide kernels, or with strides that divide them, "
    "which OpenVINO 2026.4 miscomputes with AMX",
    check=check,
)
