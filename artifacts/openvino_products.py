"""1x1 convolutions that OpenVINO makes a product of matrices of, and turns or moves wrongly.

OpenVINO (seen with 2026.4) takes a 1x1 Conv that reads integer weights for the product of a matrix
with a picture whose channels come last. It takes any Transpose beside the Conv for the one that
makes it so, and any Reshape for one that keeps the order; strides and borders it forgets. Values
come to other places, the result gets another shape, or the network is refused.

* With integer weights alone (or integers of 16 bits beside them): a Transpose in front that does
  not put the last axis to the channels; one behind, also behind factors and summands per channel,
  that does not put the channels last; with a stride or a border any Transpose beside it, and a
  Reshape behind; a Reshape to five axes for a Conv over three.
* With 4-bit weights and integers of 8 bits: a Transpose behind that does not put the channels last.
* With integers of 8 bits on both sides: the same, if there is a stride.

Of any product with 4-bit weights and an odd number of input channels the results are noise.
"""

import onnx

from artifacts.graph_reading import attribute

_TO_FIRST, _TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
_RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


def misreads_result(
    node: onnx.NodeProto,
    weight: tuple[int, ...],
    reader: onnx.NodeProto | None,
    rank: int | None,
    *,
    has_integer_input: bool,
    has_int4_weights: bool = False,
) -> bool:
    """Whether the result of a Conv with integer weights comes to other places.

    Args:
        node: a Conv.
        weight: shape of its weight, [out, in, ..., kernel].
        reader: the one node that reads its result, beyond what is joined with it; None for others.
        rank: how many axes the reader's result has; None where that is not known.
        has_integer_input: whether it multiplies integers of 8 bits.
        has_int4_weights: whether the weights have 4.
    """
    if reader is None or not _becomes_product(node, weight):
        return False
    if reader.op_type == "Transpose" and _order(reader) != _TO_LAST:
        return _is_strided(node) or has_int4_weights or not has_integer_input
    if has_integer_input or reader.op_type not in _RESHAPES | {"Transpose"}:
        return False
    return _is_strided(node) or _is_padded(node) or (rank or 0) > len(weight)


def misreads_input(
    node: onnx.NodeProto, weight: tuple[int, ...], maker: onnx.NodeProto | None
) -> bool:
    """Whether what a Conv with integer weights alone reads is taken from other places.

    Args:
        node: a Conv.
        weight: shape of its weight, [out, in, ..., kernel].
        maker: the node in front of it; None for none.
    """
    if maker is None or maker.op_type != "Transpose" or not _becomes_product(node, weight):
        return False
    return _order(maker) != _TO_FIRST or _is_strided(node) or _is_padded(node)


def misreads_int4(node: onnx.NodeProto, weight: tuple[int, ...]) -> bool:
    """Whether 4-bit weights of a product would be misread.

    Two share a byte, and of an odd number in a row the last one shares it with the next row.

    Args:
        node: a Gemm or MatMul, or a Conv that becomes a product where it stands beside a Transpose
            or Reshape.
        weight: shape of its weight.
    """
    if node.op_type == "Conv":
        return _becomes_product(node, weight) and weight[1] % 2 == 1
    if node.op_type == "Gemm":
        return weight[1 if attribute(node, "transB", 0) else 0] % 2 == 1
    return node.op_type == "MatMul" and len(weight) > 1 and weight[-2] % 2 == 1


def _becomes_product(node: onnx.NodeProto, weight: tuple[int, ...]) -> bool:
    return len(weight) == 4 and weight[2:] == (1, 1) and attribute(node, "group", 1) == 1


def _is_strided(node: onnx.NodeProto) -> bool:
    return bool(max(attribute(node, "strides", [1])) > 1)


def _is_padded(node: onnx.NodeProto) -> bool:
    return any(attribute(node, "pads", []))


def _order(transpose: onnx.NodeProto) -> list[int]:
    return list(attribute(transpose, "perm", [3, 2, 1, 0]))
