"""Decides which nodes of a network compute in FP16 and which stay in FP32.

The decision is per node and comes with a reason. A node computes in FP16 if ONNX's own schema has
an FP16 version of it, none of its constants leaves FP16's range, and none of its activations did on
the samples. Q/DQ pairs follow their neighbours: a DequantizeLinear gives what its consumers take, a
QuantizeLinear takes what its producer gives, so that no cast comes between a quantized operator and
its Q/DQ and TensorRT still fuses them.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from export.fp16_places import find_place_nodes

FP16_MAX = 65504.0
FP16_SMALLEST = 2.0**-24
FP16_SMALLEST_NORMAL = 2.0**-14
"""Below it FP16 has fewer bits the smaller a value is."""
HEADROOM = 0.5
"""Samples show less than the world does, so half of FP16's range is kept for what they don't."""

SCALE_OPSET = 19
"""From here on the scales of Q/DQ may be FP16."""

MAX_SCALE_ERROR = 2.0**-9
"""Largest relative error of a scale rounded to FP16: an eighth of an int8 step at full range."""

FP32_OPERATORS = {
    "Exp": "it overflows FP16 from 11.1 on",
    "Pow": "powers leave FP16's range easily",
    "Softplus": "it computes an exponential",
    "CumSum": "long sums leave FP16's range",
    "ReduceSum": "long sums leave FP16's range",
    "ReduceSumSquare": "sums of squares leave FP16's range",
    "ReduceL2": "sums of squares leave FP16's range",
    "ReduceProd": "products leave FP16's range",
    "ReduceLogSumExp": "it computes exponentials",
    "LpNormalization": "sums of squares leave FP16's range",
    "GridSample": "coordinates need more than 11 bits",
}
QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
_FP16_TYPE, _FP32_TYPE = "tensor(float16)", "tensor(float)"


@dataclass(frozen=True)
class KeptInFp32:
    """A node that stays in FP32.

    Attributes:
        node: the node's name.
        operator: its operator.
        reason: why.
    """

    node: str
    operator: str
    reason: str


@dataclass(frozen=True)
class Fp16Plan:
    """The decision for every node.

    Attributes:
        fp16_inputs: per node (index in the graph) the input positions that become FP16; nodes that
            are not listed compute in FP32.
        fp16_outputs: the tensors that are born in FP16.
        kept: the nodes that could have been FP16 and are not, with the reason.
    """

    fp16_inputs: Mapping[int, frozenset[int]]
    fp16_outputs: frozenset[str]
    kept: tuple[KeptInFp32, ...]


class Planner:
    """Plans the precision of one graph.

    Args:
        model: shape-inferred, without Constant nodes.
        ranges: largest magnitude of each float tensor on the samples; may be empty.
        keep_fp32: names of nodes that stay in FP32 whatever happens.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        ranges: Mapping[str, float],
        keep_fp32: frozenset[str] = frozenset(),
    ) -> None:
        self.graph = model.graph
        self.opset = next(item.version for item in model.opset_import if not item.domain)
        self.ranges = ranges
        self.keep_fp32 = keep_fp32
        self.weights = {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in self.graph.initializer
            if tensor.data_type == TensorProto.FLOAT
        }
        values = (*self.graph.input, *self.graph.value_info, *self.graph.output)
        self.floats = set(self.weights) | {
            value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT
        }
        self.producers = {name: node for node in self.graph.node for name in node.output}
        self.consumers = defaultdict(list)
        for index, node in enumerate(self.graph.node):
            for name in node.input:
                self.consumers[name].append(index)
        self.captured = captured_names(self.graph)
        self.places = {
            name for at in find_place_nodes(self.graph.node) for name in self.graph.node[at].output
        }

    def plan(self) -> Fp16Plan:
        """Returns the plan."""
        positions: dict[int, frozenset[int]] = {}
        outputs: set[str] = set()
        kept: list[KeptInFp32] = []
        for index, node in enumerate(self.graph.node):
            if node.op_type in (QUANTIZE, DEQUANTIZE):
                continue
            found = self._positions(node)
            results = {name for name in node.output if name in self.floats}
            if not results and not self._is_read_in_fp16(node, found, outputs):
                found = frozenset()
            reason = self._find_reason(node) if found else ""
            if reason:
                kept.append(KeptInFp32(node.name, node.op_type, reason))
            elif found:
                positions[index] = found
                outputs |= results
        for index, node in enumerate(self.graph.node):
            if node.op_type == DEQUANTIZE and any(
                user in positions for user in self.consumers[node.output[0]]
            ):
                positions[index] = frozenset({1})
                outputs.add(node.output[0])
        for index, node in enumerate(self.graph.node):
            if node.op_type == QUANTIZE and node.input[0] in outputs and self._fits(node):
                positions[index] = frozenset({0, 1})
        return Fp16Plan(positions, frozenset(outputs), tuple(kept))

    def _is_read_in_fp16(
        self, node: onnx.NodeProto, positions: frozenset[int], halves: set[str]
    ) -> bool:
        """Returns whether all that a decision (a comparison, an ArgMax) computes from is in FP16.

        Its operands have one type. One of FP32 says that the others are to be widened: rounded,
        values that differ might compare as equal.
        """
        computed = {node.input[i] for i in positions} - self.weights.keys()
        return bool(computed) and computed <= halves

    def _positions(self, node: onnx.NodeProto) -> frozenset[int]:
        """Returns the inputs that are FP16 in the node's FP16 version; none if there is none.

        These are the inputs of the result's type, and what else is computed: a schema may give it
        a type of its own (RMSNormalization, the values of Attention), runtimes do not.
        """
        if node.domain not in ("", "ai.onnx") or _has_subgraph(node):
            return frozenset()
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset)
        except onnx.defs.SchemaError:
            return frozenset()
        typed = [(i, _formal(schema.inputs, i), name) for i, name in enumerate(node.input)]
        floats = [(i, formal) for i, formal, name in typed if name in self.floats]
        results = [(_formal(schema.outputs, i), name) for i, name in enumerate(node.output)]
        others = [formal for formal, name in results if name not in self.floats]
        kinds = {formal.type_str for formal, name in results if name in self.floats}
        kinds = kinds or {formal.type_str for _, formal in floats}
        if len(kinds) != 1 or any(map(_holds_tensors, others)):
            return frozenset()
        kind = kinds.pop()
        return frozenset(
            i
            for i, formal in floats
            if _FP16_TYPE in formal.types
            and (formal.type_str == kind or node.input[i] not in self.weights)
        )

    def _find_reason(self, node: onnx.NodeProto) -> str:
        """Returns why a node that has an FP16 version stays in FP32, or nothing."""
        if node.name in self.keep_fp32:
            return "asked for"
        if node.op_type in FP32_OPERATORS:
            return FP32_OPERATORS[node.op_type]
        if not self.places.isdisjoint(node.output):
            return "places need more than 11 bits"
        if any(name in self.captured for name in node.output):
            return "a subgraph reads its output"
        for name in node.input:
            reason = self._find_input_reason(name)
            if reason:
                return reason
        for name in (*node.input, *node.output):
            reach = self.ranges.get(name, 0.0) if name in self.floats else 0.0
            if reach > FP16_MAX * HEADROOM:
                return f"'{name}' reaches {reach:.3g} on the samples"
            if 0 < reach < FP16_SMALLEST_NORMAL:
                return f"'{name}' reaches no more than {reach:.3g} on the samples"
        return ""

    def _find_input_reason(self, name: str) -> str:
        if name in self.weights:
            return _find_constant_reason(name, self.weights[name])
        producer = self.producers.get(name)
        if producer is None or producer.op_type != DEQUANTIZE:
            return ""
        if name in self.captured:
            return f"a subgraph reads '{name}' too"
        if self.opset < SCALE_OPSET:
            return f"Q/DQ of opset {self.opset} have FP32 scales only"
        return "" if self._fits(producer) else f"the scale of '{name}' does not fit into FP16"

    def _fits(self, node: onnx.NodeProto) -> bool:
        """Returns whether the scale of a Q or DQ keeps its value in FP16."""
        scale = self.weights.get(node.input[1])
        if scale is None or self.opset < SCALE_OPSET:
            return False
        with np.errstate(over="ignore"):
            rounded = scale.astype(np.float16).astype(np.float64)
        return bool((np.abs(rounded - scale) <= MAX_SCALE_ERROR * np.abs(scale)).all())


def _find_constant_reason(name: str, values: NDArray[np.float32]) -> str:
    magnitudes = np.abs(values[np.isfinite(values)])
    peak = float(magnitudes.max(initial=0.0))
    if peak > FP16_MAX:
        return f"constant '{name}' reaches {peak:.3g}, beyond FP16's {FP16_MAX:.0f}"
    if 0 < peak < FP16_SMALLEST:
        return f"constant '{name}' is {peak:.3g}, which FP16 rounds to 0"
    return ""


def _formal(
    formals: list[onnx.defs.OpSchema.FormalParameter], index: int
) -> onnx.defs.OpSchema.FormalParameter:
    return formals[min(index, len(formals) - 1)]


def _holds_tensors(formal: onnx.defs.OpSchema.FormalParameter) -> bool:
    """Whether a result may be a sequence or an optional, whose tensors would change their type."""
    return any(kind.startswith(("seq(", "optional(")) for kind in formal.types)


def _has_subgraph(node: onnx.NodeProto) -> bool:
    kinds = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    return any(attribute.type in kinds for attribute in node.attribute)


def captured_names(graph: onnx.GraphProto) -> set[str]:
    """Returns the names that subgraphs read, which may be tensors of this graph."""
    names = set()
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                names |= {name for item in inner.node for name in item.input}
                names |= {value.name for value in inner.output} | captured_names(inner)
    return names
