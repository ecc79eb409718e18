"""The guard that keeps OpenVINO from misreading int8 tensors that come out of a Concat.

OpenVINO (seen with 2026.4) moves quantizers past a Concat, and then reads signed integers as
unsigned ones: the results are noise, wherever the Q/DQ pairs stand. With a LeakyRelu of slope 1,
which changes no value, in front of the pair that reads the joined tensor, it is right; what comes
before the guard still runs in int8 if it has pairs of its own. Other runtimes do not need the
guard, and `export trt` takes it out, so that TensorRT can join the Concat with its neighbours.

A zero point that is moved past a Concat of rows becomes one for each row, with which OpenVINO does
not compile the MatMul that reads them: the tokens of several feature maps, as in RT-DETR. The guard
keeps it where it is.

A quantizer behind a maximum or minimum is computed in the kernel of that reduction, wrongly, and a
LeakyRelu with it. A Max of the tensor with itself is a kernel of its own, and all is right.

Nor does OpenVINO compile a quantizer behind the Cast of an input in float64 or 16-bit integers: it
joins the two, and has no kernel for that. The same guard between them keeps them apart.
"""

import onnx
from onnx import TensorProto, helper

from artifacts import onnxruntime_guard

UNQUANTIZED_TYPES = frozenset(
    (
        TensorProto.DOUBLE,
        TensorProto.INT16,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
    )
)
"""Of inputs that OpenVINO does not quantize, though it casts them to float32."""
GUARD_SUFFIX = "_openvino_guard"
_GUARDS = frozenset({"LeakyRelu", "Max"})
_SUFFIXES = (GUARD_SUFFIX, onnxruntime_guard.GUARD_SUFFIX)


def make_guard(tensor: str, *, is_extremum: bool = False) -> onnx.NodeProto:
    """Returns the node that guards a tensor; its output takes the tensor's place.

    Args:
        tensor: its name.
        is_extremum: whether a maximum or minimum makes it, with which a LeakyRelu would be joined.
    """
    name = f"{tensor}{GUARD_SUFFIX}"
    if is_extremum:
        return helper.make_node("Max", [tensor, tensor], [name], name)
    return helper.make_node("LeakyRelu", [tensor], [name], name, alpha=1.0)


def remove_guards(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model without its guards, onnxruntime's too; it is not changed itself."""
    sources = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type in _GUARDS and node.name.endswith(_SUFFIXES)
    }
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.node[:]
    for node in model.graph.node:
        if node.output[0] not in sources:
            kept = bare.graph.node.add()
            kept.CopyFrom(node)
            kept.input[:] = [sources.get(name, name) for name in node.input]
    known = [value for value in bare.graph.value_info if value.name not in sources]
    del bare.graph.value_info[:]
    bare.graph.value_info.extend(known)
    return bare
