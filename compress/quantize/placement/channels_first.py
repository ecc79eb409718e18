"""Parts of a network whose channels come last, written with the channels first, as OpenVINO likes.

ConvNeXt and its kin (Liu et al. 2022, arXiv:2201.03545) move the channels to the last axis for
LayerNormalization and Linear layers, and back before the next Conv. OpenVINO (2026.4) keeps the
channels last in memory anyway, and yet computes such a Transpose, reorders around a
LayerNormalization, and multiplies by MatMul more slowly than by a 1x1 Conv
(`benchmarks/kernel_forms.py`). Between two Transposes, a Linear layer is a 1x1 Conv, and a mean
over the last axis is one over axis 1. Results stay, up to rounding.
"""

import numpy as np
import onnx
from onnx import helper

from compress.quantize.graph import Graph, attribute, rename_tensors
from compress.quantize.placement.node_writing import NodeWriter, make_reduction

TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
ELEMENTWISE = frozenset(
    {
        *("Abs", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu"),
        *("Log", "Mish", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign"),
        *("Sqrt", "Tanh", "ThresholdedRelu"),
        *("Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub"),
    }
)
REDUCTIONS = frozenset({"ReduceMean", "ReduceSum", "ReduceL2", "ReduceSumSquare"})


def write_channels_first(graph: Graph) -> list[str]:
    """Rewrites what lies between Transposes to channels-last and back; returns their names."""
    inside = _find_inside(graph)
    writer = _Writer(graph)
    nodes: list[onnx.NodeProto] = []
    removed: list[str] = []
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        if node.name in inside:
            nodes += writer.write(rename_tensors(node, renamed))
            removed += [node.name] if node.op_type == "Transpose" else []
        elif _moves(graph, node, TO_FIRST) and node.input[0] in writer.first:
            removed.append(node.name)
            result, moved = node.output[0], writer.first[node.input[0]]
            if result in graph.outputs:
                nodes.append(helper.make_node("Identity", [moved], [result], node.name))
            else:
                renamed[result] = moved
        else:
            nodes.append(rename_tensors(node, renamed))
    graph.nodes = nodes
    graph.index()
    return removed


def _find_inside(graph: Graph) -> set[str]:
    """Returns the nodes that compute with the channels last, from the first Transpose on.

    Only whole islands: what another node reads with the channels last would need a Transpose.
    """
    inside: set[str] = set()
    tensors: set[str] = set()
    for node in graph.nodes:
        if _moves(graph, node, TO_LAST) or _is_convertible(graph, node, tensors):
            inside.add(node.name)
            tensors.add(node.output[0])
    while True:
        open_nodes = {
            node.name
            for node in graph.nodes
            if node.name in inside and not _is_closed(graph, node, inside)
        }
        if not open_nodes:
            return inside
        inside -= open_nodes


def _is_closed(graph: Graph, node: onnx.NodeProto, inside: set[str]) -> bool:
    """Whether a node's operands come from within, and its result stays there or is moved back."""
    result = node.output[0]
    is_entered = node.op_type == "Transpose" or all(
        maker.name in inside
        for maker in (graph.producer(name) for name in node.input)
        if maker is not None
    )
    return (
        is_entered
        and result not in graph.outputs
        and all(
            reader.name in inside or _moves(graph, reader, TO_FIRST)
            for reader in graph.consumers(result)
        )
    )


def _moves(graph: Graph, node: onnx.NodeProto, order: list[int]) -> bool:
    is_float = node.op_type == "Transpose" and node.input[0] in graph.float32
    return is_float and list(attribute(node, "perm", [])) == order


def _is_convertible(graph: Graph, node: onnx.NodeProto, tensors: set[str]) -> bool:
    """Whether a node with operands among `tensors` has a twin with the channels first."""
    if len(node.output) != 1 or node.output[0] not in graph.float32:
        return False
    computed = graph.computed_inputs(node)
    if not computed or any(name not in tensors for name in computed):
        return False
    constants = [graph.weights[name] for name in node.input if name in graph.weights]
    if node.op_type in ELEMENTWISE:
        return all(value.ndim <= 4 for value in constants)
    if node.op_type == "MatMul":
        return node.input[0] in tensors and [value.ndim for value in constants] == [2]
    if node.op_type == "LayerNormalization":
        is_last = attribute(node, "axis", -1) in (-1, 3)
        return is_last and len(computed) == 1 and all(value.ndim == 1 for value in constants)
    is_reduction = node.op_type in REDUCTIONS and len(computed) == 1
    return is_reduction and bool(attribute(node, "keepdims", 1)) and bool(_axes(graph, node))


def _axes(graph: Graph, node: onnx.NodeProto) -> list[int]:
    """Returns the axes that a reduction names, as an attribute or a constant input."""
    given = node.input[1] if len(node.input) > 1 else ""
    axes = graph.weights[given].tolist() if given else attribute(node, "axes", [])
    return [int(axis) % 4 for axis in axes]


class _Writer:
    """Writes nodes with the channels first.

    Attributes:
        first: for each tensor with the channels last, its twin with the channels first.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.first: dict[str, str] = {}

    def write(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Returns the twin of a node inside an island."""
        data, result = node.input[0], node.output[0]
        if node.op_type == "Transpose":
            self.first[result] = data
            return []
        self.first[result] = self._name(f"{result}_first", self.graph.shapes.get(result))
        if node.op_type == "MatMul":
            return [self._write_conv(node)]
        if node.op_type == "LayerNormalization":
            return self._write_norm(node)
        if node.op_type in REDUCTIONS:
            axes = [(0, 2, 3, 1)[axis] for axis in _axes(self.graph, node)]
            return [
                make_reduction(self.graph, node.op_type, self.first[data], axes, self.first[result])
            ]
        twin = rename_tensors(node, self.first)
        twin.input[:] = [self._constant(name, result) for name in twin.input]
        return [twin]

    def _name(self, stem: str, last: tuple[int, ...] | None) -> str:
        """Returns a new tensor's name, whose shape with the channels last is `last`."""
        name = self.graph.unused_name(stem)
        if last is not None:
            self.graph.shapes[name] = tuple(last[axis] for axis in TO_FIRST)
        self.graph.float32.add(name)
        return name

    def _constant(self, name: str, stem: str) -> str:
        """Returns the twin of a constant that is combined with a tensor of four axes."""
        value = self.graph.weights.get(name)
        if value is None or value.size == 1:
            return name
        full = value.reshape((1,) * (4 - value.ndim) + value.shape)
        return self._weight(f"{stem}_{name}", full.transpose(TO_FIRST))

    def _weight(self, stem: str, value: np.ndarray) -> str:
        name = self.graph.unused_name(stem)
        self.graph.weights[name] = np.ascontiguousarray(value)
        return name

    def _write_conv(self, node: onnx.NodeProto) -> onnx.NodeProto:
        weight = self.graph.weights[node.input[1]].T[:, :, None, None]
        inputs = [self.first[node.input[0]], self._weight(f"{node.name}_weight", weight)]
        return helper.make_node("Conv", inputs, [self.first[node.output[0]]], node.name)

    def _write_norm(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Returns LayerNormalization over the channels (Ba et al. 2016, arXiv:1607.06450)."""
        scale = self.graph.weights[node.input[1]]
        bias = self.graph.weights[node.input[2]] if len(node.input) > 2 else np.zeros_like(scale)
        writer = NodeWriter(self.graph, self.first[node.output[0]])
        writer.normalize(
            self.first[node.input[0]],
            lambda data: writer.average(data, [1]),
            attribute(node, "epsilon", 1e-5),
            scale.reshape(1, -1, 1, 1),
            bias.reshape(1, -1, 1, 1),
        )
        return writer.finish()
