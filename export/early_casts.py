"""Bytes become floats before they are moved: TensorRT moves no UINT8.

A camera's picture enters as UINT8 with its channels last, and exporters keep the order in which the
code says `picture.permute(0, 3, 1, 2).float()`: a Transpose of UINT8, then the Cast. TensorRT takes
UINT8 at an input that a Cast reads, and nowhere else. Cast first and then moved, values are the
same.
"""

from collections import defaultdict

import onnx
from onnx import TensorProto, helper

from artifacts.graph_reading import read_tensors, typed_values
from artifacts.shape_inference import infer_shapes

MOVES = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators that move the values of their first input (a Concat those of all)."""
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})


def cast_before_moves(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the network with a Cast to float in front of what moves UINT8 towards one.

    What anything else than such a Cast reads too stays as it is. The Casts behind have nothing left
    to do, and stay.

    Args:
        model: in topological order, with unique names of nodes, shape-inferred; returned itself
            where nothing is to be done.
    """
    kinds = _find_moves(model)
    if not kinds:
        return model
    early = onnx.ModelProto()
    early.CopyFrom(model)
    del early.graph.node[:]
    floats = {name for node in model.graph.node if node.name in kinds for name in node.output}
    for node in model.graph.node:
        moved = onnx.NodeProto()
        moved.CopyFrom(node)
        for place in _moved_places(node) if node.name in kinds else ():
            if node.input[place] not in floats:
                cast = _make_cast(node, place, kinds[node.name])
                early.graph.node.append(cast)
                moved.input[place] = cast.output[0]
        early.graph.node.append(moved)
    del early.graph.value_info[:]
    return infer_shapes(early)


def _find_moves(model: onnx.ModelProto) -> dict[str, int]:
    """Returns the nodes that can move floats instead of UINT8, and the float type read of each."""
    values = (*typed_values(model), *model.graph.initializer)
    narrow = {value.name for value in values if _element_type(value) == TensorProto.UINT8}
    wanted: dict[str, set[int]] = defaultdict(set)
    for value in model.graph.output:
        wanted[value.name].add(TensorProto.UINT8)
    kinds: dict[str, int] = {}
    for node in reversed(model.graph.node):
        kind = helper.get_node_attr_value(node, "to") if node.op_type == "Cast" else None
        moved = {node.input[place] for place in _moved_places(node)}
        read = {one for name in node.output for one in wanted[name]}
        if moved and moved <= narrow and len(read) == 1 and read <= _FLOATS:
            kinds[node.name] = kind = read.pop()
        for name in read_tensors(node):
            wanted[name].add(kind or TensorProto.UINT8)
    return kinds


def _moved_places(node: onnx.NodeProto) -> range:
    """Returns the inputs whose values a node moves, by their positions; none of other nodes."""
    if node.op_type not in MOVES or node.domain not in ("", "ai.onnx"):
        return range(0)
    return range(len(node.input) if node.op_type == "Concat" else 1)


def _make_cast(node: onnx.NodeProto, place: int, kind: int) -> onnx.NodeProto:
    name = f"{node.name}_{place}_float"
    return helper.make_node("Cast", [node.input[place]], [name], name, to=kind)


def _element_type(value: onnx.ValueInfoProto | onnx.TensorProto) -> int:
    if isinstance(value, onnx.TensorProto):
        return int(value.data_type)
    return int(value.type.tensor_type.elem_type)
