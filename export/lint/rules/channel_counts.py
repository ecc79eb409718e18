"""Channel counts of INT8 layers that do not fill the tensor cores."""

from collections.abc import Iterator

from artifacts.wording import name_some
from export.lint.finding import INFO, Finding
from export.lint.graph import LintGraph, attribute
from export.lint.rule import TENSORRT, Rule
from export.lint.target import Target

PACKED = 4
FILLED = 32


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields one finding for the layers whose channels are no multiple of 4, one for 32."""
    odd: list[str] = []
    unfilled: list[str] = []
    for node in graph.of("Conv", "ConvTranspose", "Gemm", "MatMul"):
        if not graph.is_integer_layer(node):
            continue
        shape = graph.shape(node.input[1])
        groups = attribute(node, "group", 1)
        if shape is None or len(shape) < 2 or groups > 1:
            continue
        counts = f"{node.name} ({shape[0]}x{shape[1]})"
        if any(count % PACKED for count in shape[:2]):
            odd.append(counts)
        elif any(count % FILLED for count in shape[:2]):
            unfilled.append(counts)
    for names, step in ((odd, PACKED), (unfilled, FILLED)):
        if names:
            yield Finding(
                rule=RULE.name,
                severity=INFO,
                place=name_some(names, 1),
                what=f"{len(names)} INT8 layers with channels that are no multiple of {step}",
                why=f"INT8 channels are packed in groups of {step}; the rest is padding",
                fix=f"choose or prune to multiples of {step} (a network's input and output cannot)",
            )


RULE = Rule(
    name="channel-count",
    severities=(INFO,),
    targets=TENSORRT,
    summary="INT8 layers with channels that are no multiple of 4 or 32",
    check=check,
)
