"""What OpenVINO or onnxruntime makes of the network, where it is installed."""

import re
from collections.abc import Iterator
from typing import Any

from artifacts.bias_quantization import PRODUCT_FUSION
from artifacts.graph_checks import iter_nodes
from artifacts.graph_reading import read_tensors
from artifacts.openvino_clips import read_openvino_model
from artifacts.openvino_executed import find_float_layers
from artifacts.openvino_guard import UNQUANTIZED_TYPES
from artifacts.openvino_import import import_openvino
from artifacts.openvino_refusal import read_node, read_refusal
from export.lint.finding import ERROR, INFO, WARNING, Finding
from export.lint.graph import QUANTIZE, LintGraph
from export.lint.rule import Rule
from export.lint.rules import openvino_transposed
from export.lint.rules.operators import suggest_instead
from export.lint.target import Target

_OPERATOR = re.compile(r"Fatal error: (\S+):(\w+)\(|implementation for (\w+)\(|Op \((\w+)\)")
_WITHOUT_FUSION = (
    "export with opset 20 or older and quantize that, or give the bias as many axes as the "
    f"product, or open it with InferenceSession(…, disabled_optimizers=['{PRODUCT_FUSION}']), "
    "as framefit does"
)
_UNOPTIMIZED = "open it with SessionOptions.graph_optimization_level = ORT_DISABLE_ALL"
_NODE = re.compile(r"node with name '([^']+)'|Node \(([^)]+)\)|in node \(([^)]+)\)")


def check(graph: LintGraph, target: Target) -> Iterator[Finding]:
    """Yields what the runtime refuses; that it was not asked, where it is not installed."""
    ask = {"openvino": _ask_openvino, "onnxruntime": _ask_onnxruntime}[target.name]
    try:
        yield from ask(graph, target)
    except ImportError:
        yield Finding(
            rule=RULE.name,
            severity=INFO,
            place="the graph",
            what=f"{target.title} is not installed here",
            why="whether it reads the network was not tried",
            fix=f"pip install {target.name}, and lint again",
        )


def _ask_openvino(graph: LintGraph, target: Target) -> Iterator[Finding]:
    openvino = import_openvino()
    core = openvino.Core()
    title = f"{target.title} {openvino.__version__.partition('-')[0]}"
    try:
        model = read_openvino_model(core, graph.model)
    except Exception as error:
        refusal = read_refusal(str(error))
    else:
        yield from _compile_openvino(graph, target, core, model, title)
        return
    for written in refusal.missing:
        operator = re.sub(r"-\d+$", "", written).rpartition(".")[2]
        for place in _places(graph, operator):
            why = f"{title} has no conversion for it"
            yield _refuse(place, f"operator {written}", why, operator)
    if refusal.missing:
        return
    for operator, place, reason in _drop_followers(graph, refusal.failed):
        yield _refuse(place or "the graph", f"operator {operator}", f"{title}: {reason}", operator)
    if not refusal.failed:
        yield _refuse("the graph", "what its reader refuses", f"{title}: {refusal.reason}")


def _compile_openvino(
    graph: LintGraph, target: Target, core: Any, model: Any, title: str
) -> Iterator[Finding]:
    """Yields why OpenVINO does not compile what it has read, or what it computes in float."""
    try:
        compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    except Exception as error:
        yield from _describe_failure(graph, str(error), title)
        return
    integer_layers = filter(graph.is_integer_layer, graph.nodes)
    layers = {node.name or node.output[0]: node.op_type for node in integer_layers}
    explained = {finding.place for finding in openvino_transposed.check(graph, target)}
    for name, kernel in find_float_layers(compiled, layers.keys() - explained).items():
        yield Finding(
            rule=RULE.name,
            severity=WARNING,
            place=name,
            what=f"a {layers[name]} with Q/DQ on both operands that it computes in float",
            why=f"{title} takes the kernel {kernel} for it: rounding costs quality, and gains "
            "nothing",
            fix="keep it in float: compress quantize --target openvino --keep-float NAME",
        )


def _describe_failure(graph: LintGraph, message: str, title: str) -> Iterator[Finding]:
    """Yields why OpenVINO does not compile for the processor what it has read."""
    reason, named = read_refusal(message), read_node(message)
    why = f"{title}: {reason}"
    casts = _casts_of_unquantized_inputs(graph)
    for place in casts:
        yield Finding(
            rule=RULE.name,
            severity=ERROR,
            place=place,
            what="an input whose type it does not quantize, with Q behind its Cast",
            why=why,
            fix="give the network this input in float32, or quantize the float network with "
            "compress quantize --target openvino, which keeps the two apart",
        )
    if not casts:
        node = next((item for item in graph.nodes if named in (item.name, *item.output)), None)
        operator = node.op_type if node is not None else ""
        what = f"operator {operator}, which it reads and does not compile"
        if node is None:
            named, what = "the graph", "what it reads and does not compile"
        yield _refuse(named, what, why, operator)


def _casts_of_unquantized_inputs(graph: LintGraph) -> list[str]:
    """Returns the Casts of inputs in types that OpenVINO does not quantize, where a Q follows."""
    inputs = {item.name for item in graph.inputs}
    return [
        node.name or node.output[0]
        for node in graph.of("Cast")
        if node.input[0] in inputs
        and graph.element_type(node.input[0]) in UNQUANTIZED_TYPES
        and any(reader.op_type == QUANTIZE for reader in graph.consumers(node.output[0]))
    ]


def _drop_followers(
    graph: LintGraph, failed: tuple[tuple[str, str, str], ...]
) -> list[tuple[str, str, str]]:
    """Leaves out what failed because it reads what an earlier failure did not give."""
    places = {place for _, place, _ in failed}
    lost: set[str] = set()
    following: set[str] = set()
    for node in graph.nodes:
        names = {node.name, *node.output} & places
        if not lost.isdisjoint(read_tensors(node)):
            following |= names
            lost.update(node.output)
        elif names:
            lost.update(node.output)
    return [item for item in failed if item[1] not in following]


def _ask_onnxruntime(graph: LintGraph, target: Target) -> Iterator[Finding]:
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    content = graph.model.SerializeToString()
    refusal = _open_onnxruntime(content, levels.ORT_DISABLE_ALL)
    if refusal:
        yield from _describe_refusal(graph, target, refusal)
        return
    refusal = _open_onnxruntime(content, levels.ORT_ENABLE_ALL)
    if refusal:
        can_read = not _open_onnxruntime(content, levels.ORT_ENABLE_ALL, PRODUCT_FUSION)
        yield Finding(
            rule=RULE.name,
            severity=WARNING,
            place="the graph",
            what="what it does not open with its optimizations",
            why=f"{target.title} {onnxruntime.__version__}'s own optimizations fail: {refusal}",
            fix=_WITHOUT_FUSION if can_read else _UNOPTIMIZED,
        )


def _open_onnxruntime(content: bytes, level: Any, *disabled: str) -> str:
    """Returns why onnxruntime does not open a network; nothing where it does."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    try:
        onnxruntime.InferenceSession(
            content, options, providers=providers, disabled_optimizers=list(disabled)
        )
    except Exception as error:
        return str(error).rpartition(" : ")[2]
    return ""


def _describe_refusal(graph: LintGraph, target: Target, message: str) -> Iterator[Finding]:
    import onnxruntime

    named = _OPERATOR.search(message)
    operator = "".join(part or "" for part in named.groups()[1:]) if named else ""
    node = _NODE.search(message)
    places = [next(filter(None, node.groups()))] if node else _places(graph, operator)
    why = f"{target.title} {onnxruntime.__version__} stops there: {message}"
    for place in places or ["the graph"]:
        what = f"operator {operator}" if operator else "what it refuses"
        yield _refuse(place, what, why, operator)


def _places(graph: LintGraph, operator: str) -> list[str]:
    nodes = [node for node in iter_nodes(graph.nodes) if node.op_type == operator]
    return [node.name or node.output[0] for node in nodes] or ["the graph"]


def _refuse(place: str, what: str, why: str, operator: str = "") -> Finding:
    return Finding(
        rule=RULE.name,
        severity=ERROR,
        place=place,
        what=what,
        why=why,
        fix=suggest_instead(operator),
    )


RULE = Rule(
    name="runtime-reader",
    severities=(ERROR, INFO, WARNING),
    targets=("openvino", "onnxruntime"),
    summary="what the installed runtime does not read, or computes in float, by trying it",
    check=check,
)
