"""Multiply-accumulates and operations of one ONNX node, from its shapes.

A multiply-accumulate (MAC) is two operations. MACs are those of convolutions and matrix products,
which is what timm and fvcore publish; all other arithmetic counts as operations only, one for each
result of an elementwise operator whatever it computes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from latency_budget.why.graph_tensors import GraphTensors, attribute

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Count:
    """What a node computes.

    Attributes:
        macs: multiply-accumulates of convolutions and matrix products.
        other: operations besides these.
        passes: how often the node has to read its first input.
    """

    macs: int = 0
    other: int = 0
    passes: int = 1

    @property
    def operations(self) -> int:
        """Two for each multiply-accumulate, and the others."""
        return 2 * self.macs + self.other


_Rule = Callable[["onnx.NodeProto", GraphTensors], Count]


def count_operations(node: "onnx.NodeProto", tensors: GraphTensors) -> Count | None:
    """Returns what a node computes; None for an operator that has no rule.

    Raises:
        InputError: a shape that the count needs is not known.
    """
    rule = RULES.get(node.op_type)
    return None if rule is None else rule(node, tensors)


def _output_count(node: "onnx.NodeProto", tensors: GraphTensors) -> int:
    return prod(tensors.shape(node.output[0]))


def _conv(node: "onnx.NodeProto", tensors: GraphTensors) -> Count:
    position = 3 if node.op_type == "QLinearConv" else 1
    weight = tensors.shape(node.input[position])
    return Count(macs=_output_count(node, tensors) * prod(weight[1:]))


def _conv_transpose(node: "onnx.NodeProto", tensors: GraphTensors) -> Count:
    weight = tensors.shape(node.input[1])
    return Count(macs=prod(tensors.shape(node.input[0])) * prod(weight[1:]))


def _gemm(node: "onnx.NodeProto", tensors: GraphTensors) -> Count:
    rows, columns = tensors.shape(node.input[0])
    depth = rows if attribute(node, "transA", 0) else columns
    return Count(macs=_output_count(node, tensors) * depth)


def _matmul(node: "onnx.NodeProto", tensors: GraphTensors) -> Count:
    return Count(macs=_output_count(node, tensors) * tensors.shape(node.input[0])[-1])


def _einsum(node: "onnx.NodeProto", tensors: GraphTensors) -> Count:
    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    sizes: dict[str, int] = {}
    for term, name in zip(equation.split("->")[0].split(","), node.input, strict=True):
        sizes.update(zip(term.replace("...", ""), tensors.shape(name)[::1], strict=False))
    return Count(macs=prod(sizes.values()))


def _recurrent(gates: int) -> _Rule:
    def count(node: "onnx.NodeProto", tensors: GraphTensors) -> Count:
        steps, batch = tensors.shape(node.input[0])[:2]
        weights = prod(tensors.shape(node.input[1])) + prod(tensors.shape(node.input[2]))
        hidden = tensors.shape(node.input[2])[-1]
        return Count(macs=steps * batch * weights, other=steps * batch * hidden * gates)

    return count


def _pool(node: "onnx.NodeProto", tensors: GraphTensors) -> Count:
    return Count(other=_output_count(node, tensors) * prod(attribute(node, "kernel_shape", [1])))


def _per_input(factor: int, passes: int = 1) -> _Rule:
    def count(node: "onnx.NodeProto", tensors: GraphTensors) -> Count:
        return Count(other=factor * prod(tensors.shape(node.input[0])), passes=passes)

    return count


def _per_output(factor: int) -> _Rule:
    def count(node: "onnx.NodeProto", tensors: GraphTensors) -> Count:
        return Count(other=factor * _output_count(node, tensors))

    return count


def _resize(node: "onnx.NodeProto", tensors: GraphTensors) -> Count:
    """Linear interpolation blends two values per resized axis; nearest only copies."""
    mode = attribute(node, "mode", b"nearest").decode()
    if mode == "nearest":
        return Count()
    before, after = tensors.shape(node.input[0]), tensors.shape(node.output[0])
    axes = sum(a != b for a, b in zip(before, after, strict=True))
    neighbours = (2 if mode == "linear" else 4) ** max(1, axes)
    return Count(other=(2 * neighbours - 1) * prod(after))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ELEMENTWISE = _words(
    "Abs Add And BatchNormalization Cast Ceil Celu Clip Cos Div Elu Equal Erf Exp Floor "
    "Gelu Greater GreaterOrEqual HardSigmoid HardSwish LeakyRelu Less LessOrEqual Log Max "
    "Mean Min Mish Mod Mul Neg Not Or Pow PRelu QuantizeLinear Reciprocal Relu Round Selu "
    "Sigmoid Sign Sin Softplus Softsign Sqrt Sub Sum Swish Tanh ThresholdedRelu Where Xor"
)
_MOVES = _words(
    "Concat Split Slice Transpose Pad Gather GatherElements GatherND Expand Tile DepthToSpace "
    "SpaceToDepth ScatterElements ScatterND CastLike ConstantOfShape Range Shape Size Constant "
    "DequantizeLinear Reshape Flatten Squeeze Unsqueeze Identity Dropout OneHot NonZero Trilu "
    "ReverseSequence"
)
_REDUCTIONS = _words(
    "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare "
    "ReduceLogSumExp GlobalAveragePool GlobalMaxPool ArgMax ArgMin CumSum"
)
RULES: dict[str, _Rule] = {
    **{name: _conv for name in ("Conv", "ConvInteger", "QLinearConv", "DeformConv")},
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    **{name: _matmul for name in ("MatMul", "MatMulInteger", "QLinearMatMul")},
    "Einsum": _einsum,
    "LSTM": _recurrent(12),
    "GRU": _recurrent(10),
    "RNN": _recurrent(3),
    **{name: _pool for name in ("MaxPool", "AveragePool", "LpPool")},
    **{name: _per_input(1) for name in _REDUCTIONS},
    **{name: _per_input(5, passes=2) for name in ("Softmax", "LogSoftmax")},
    **{
        name: _per_input(4, passes=2)
        for name in (
            "LayerNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "RMSNormalization",
            "LpNormalization",
        )
    },
    "LRN": _per_input(5),
    "TopK": _per_input(1),
    "Resize": _resize,
    "Upsample": _resize,
    "GridSample": _per_output(7),
    "RoiAlign": _per_output(7),
    **{name: _per_output(1) for name in ELEMENTWISE},
    **{name: _per_output(0) for name in _MOVES},
}
