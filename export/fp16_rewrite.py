"""Rewrites a float network into the strongly typed one that a plan describes.

Every type is written into the graph: constants are stored in the precision that reads them, and a
Cast stands on each edge between both precisions. Network inputs and outputs stay as they were.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from artifacts.graph_reading import NewNames, names_in
from artifacts.shape_inference import infer_shapes
from export.fp16_plan import Fp16Plan, captured_names

_FP16 = TensorProto.FLOAT16
_FP32 = TensorProto.FLOAT


class Rewriter:
    """Applies one plan to one graph.

    Args:
        model: what the plan was made for; it is not changed.
        plan: the precision of every node.
    """

    def __init__(self, model: onnx.ModelProto, plan: Fp16Plan) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.graph = self.model.graph
        self.plan = plan
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        self.floats = _float_names(self.graph)
        self.outputs = {value.name for value in self.graph.output}
        self.names = NewNames(names_in(self.graph))
        self.renamed: dict[str, str] = {}
        self.available: dict[tuple[str, int], str] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.added: list[onnx.TensorProto] = []

    def rewrite(self) -> onnx.ModelProto:
        """Returns the strongly typed model, shape-inferred."""
        for index, node in enumerate(self.graph.node):
            positions = self.plan.fp16_inputs.get(index, frozenset())
            for place, name in enumerate(node.input):
                if name in self.floats:
                    wanted = _FP16 if place in positions else _FP32
                    node.input[place] = self._provide(name, wanted)
            self._retarget_cast(node)
            self._rename_outputs(node)
            self.nodes.append(node)
            self._restore_outputs(node)
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        self.graph.initializer.extend(self.added)
        self._drop_unused_constants()
        del self.graph.value_info[:]
        return infer_shapes(self.model, is_strict=True, checks_types=True)

    def _provide(self, name: str, wanted: int) -> str:
        """Returns the name of a tensor in the wanted precision; adds what is needed for it."""
        native = _FP16 if name in self.plan.fp16_outputs else _FP32
        if native == wanted:
            return self.renamed.get(name, name)
        if (name, wanted) not in self.available:
            new_name = self._new_name(name, wanted)
            if name in self.constants:
                self.added.append(_convert(self.constants[name], new_name))
            else:
                self._cast(self.renamed.get(name, name), new_name, wanted)
            self.available[name, wanted] = new_name
        return self.available[name, wanted]

    def _new_name(self, name: str, precision: int) -> str:
        return self.names.take(f"{name}_{'fp16' if precision == _FP16 else 'fp32'}")

    def _cast(self, source: str, result: str, wanted: int) -> None:
        name = self.names.take(f"{result}_cast")
        self.nodes.append(helper.make_node("Cast", [source], [result], name, to=wanted))

    def _retarget_cast(self, node: onnx.NodeProto) -> None:
        """Lets a Cast to float give what the plan wants of it."""
        if node.op_type == "Cast" and node.output[0] in self.plan.fp16_outputs:
            next(item for item in node.attribute if item.name == "to").i = _FP16

    def _rename_outputs(self, node: onnx.NodeProto) -> None:
        """Gives a network output that is born in FP16 another name inside the network."""
        for place, name in enumerate(node.output):
            if name in self.outputs and name in self.plan.fp16_outputs:
                self.renamed[name] = self._new_name(name, _FP16)
                node.output[place] = self.renamed[name]

    def _restore_outputs(self, node: onnx.NodeProto) -> None:
        """Casts the renamed network outputs of a node back to FP32 under their own names."""
        for name, inner in self.renamed.items():
            if inner in node.output:
                self._cast(inner, name, _FP32)
                self.available[name, _FP32] = name

    def _drop_unused_constants(self) -> None:
        used = {name for node in self.graph.node for name in node.input} | self.outputs
        used |= captured_names(self.graph)
        kept = [tensor for tensor in self.graph.initializer if tensor.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)


def _convert(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    """Returns a constant in FP16; infinities stay, finite values are known to fit."""
    with np.errstate(over="ignore"):
        return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), name)


def _float_names(graph: onnx.GraphProto) -> set[str]:
    values = (*graph.input, *graph.value_info, *graph.output)
    names = {value.name for value in values if value.type.tensor_type.elem_type == _FP32}
    return names | {tensor.name for tensor in graph.initializer if tensor.data_type == _FP32}
