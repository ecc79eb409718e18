"""Finds what computes places: coordinates that are sampled at, indices that are gathered at.

FP16 has 11 bits: a column beyond 1024 is off by half a pixel there, and an index rounded from it is
another one. Tensors of places are small beside the maps that are read with them, so their
arithmetic costs next to nothing in FP32.
"""

from collections.abc import Iterable, Mapping, Sequence

import onnx

from artifacts.graph_reading import read_tensors

_PLACES_READ = {
    "Gather": 1,
    "GatherElements": 1,
    "GatherND": 1,
    "GridSample": 1,
    "RoiAlign": 1,
    "ScatterElements": 1,
    "ScatterND": 1,
}
_ARITHMETIC = frozenset(
    {
        "Abs",
        "Add",
        "Atan",
        "Cast",
        "Ceil",
        "Clip",
        "Concat",
        "Cos",
        "Div",
        "Expand",
        "Flatten",
        "Floor",
        "Gather",
        "Identity",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Reciprocal",
        "Reshape",
        "Round",
        "Sigmoid",
        "Sin",
        "Slice",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Tanh",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    }
)
_PRODUCTS = frozenset({"Einsum", "Gemm", "MatMul"})


def find_place_nodes(nodes: Sequence[onnx.NodeProto]) -> set[int]:
    """Returns the positions of the nodes that compute places, back to the layers before them.

    A product of matrices belongs to them where no layer is before it: a projection by a camera's
    matrix, for one.

    Args:
        nodes: in topological order.
    """
    producers = {name: at for at, node in enumerate(nodes) for name in node.output}
    passed = _find_passed(nodes, producers)
    found: set[int] = set()
    waiting = [
        node.input[_PLACES_READ[node.op_type]] for node in nodes if node.op_type in _PLACES_READ
    ]
    while waiting:
        at = producers.get(waiting.pop(), -1)
        if at in passed and at not in found:
            found.add(at)
            waiting += read_tensors(nodes[at])
    return found


def _find_passed(nodes: Sequence[onnx.NodeProto], producers: Mapping[str, int]) -> set[int]:
    """Returns the positions of arithmetic, and of products of nothing but arithmetic."""
    passed: set[int] = set()
    before_layers: set[int] = set()
    for at, node in enumerate(nodes):
        sources: Iterable[int] = {producers[name] for name in node.input if name in producers}
        is_before = before_layers.issuperset(sources)
        if node.op_type in _ARITHMETIC or (node.op_type in _PRODUCTS and is_before):
            passed.add(at)
            if is_before:
                before_layers.add(at)
    return passed
