"""Which operators only move values, so that they give the same results on integers."""

from collections.abc import Callable

import onnx

from compress.quantize.graph import Graph, attribute


def moved_inputs(graph: Graph, node: onnx.NodeProto) -> tuple[int, ...]:
    """Returns the positions of the inputs whose values a node moves; () if it computes.

    Every value of its outputs is then a value of these inputs, or 0.
    """
    rule = _RULES.get(node.op_type)
    if rule is None or node.domain not in ("", "ai.onnx") or not rule(graph, node):
        return ()
    positions = tuple(range(len(node.input))) if node.op_type == "Concat" else (0,)
    is_float = all(name not in graph.weights for name in (node.input[at] for at in positions))
    return positions if is_float else ()


def _always(graph: Graph, node: onnx.NodeProto) -> bool:
    del graph, node
    return True


def _has_constant_options(graph: Graph, node: onnx.NodeProto) -> bool:
    return all(name in graph.weights for name in node.input[1:] if name)


def _pads_zeros(graph: Graph, node: onnx.NodeProto) -> bool:
    if attribute(node, "mode", b"constant") != b"constant":
        return False
    value = graph.weights.get(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    is_zero = len(node.input) < 3 or not node.input[2] or (value is not None and not value.any())
    return is_zero and _has_constant_options(graph, node)


def _repeats_nearest(graph: Graph, node: onnx.NodeProto) -> bool:
    return attribute(node, "mode", b"nearest") == b"nearest" and _has_constant_options(graph, node)


def _has_one_output(graph: Graph, node: onnx.NodeProto) -> bool:
    del graph
    return len(node.output) == 1


_RULES: dict[str, Callable[[Graph, onnx.NodeProto], bool]] = {
    "Concat": _always,
    "Transpose": _always,
    "Flatten": _always,
    "DepthToSpace": _always,
    "SpaceToDepth": _always,
    "MaxPool": _has_one_output,
    "Split": _has_constant_options,
    "Reshape": _has_constant_options,
    "Squeeze": _has_constant_options,
    "Unsqueeze": _has_constant_options,
    "Slice": _has_constant_options,
    "Gather": _has_constant_options,
    "Pad": _pads_zeros,
    "Resize": _repeats_nearest,
}

MOVING = frozenset(_RULES)
VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Those whose output has every value of the input, once."""
