"""Gives a model the shapes that ONNX's own inference cannot tell.

Exporters compute shapes with nodes (Shape, Gather, Concat, Expand …). onnxruntime folds these away
where the inputs are static; its basic optimizations leave the layers as they are.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from latency_budget.why.graph_tensors import GraphTensors

if TYPE_CHECKING:
    import onnx


def with_known_shapes(model: "onnx.ModelProto") -> "onnx.ModelProto":
    """Returns the model itself where every shape is known, else a folded copy of it.

    Nodes of a copy keep their names; what was folded or fused away is missing in it.
    """
    tensors = GraphTensors(model)
    names = [name for node in model.graph.node for name in node.output if name]
    if all(tensors.is_constant(name) or tensors.is_known(name) for name in names):
        return model
    return _fold(model)


def _fold(model: "onnx.ModelProto") -> "onnx.ModelProto":
    import onnx
    import onnxruntime as ort

    from artifacts.shape_inference import infer_shapes

    with TemporaryDirectory() as folder:
        path = Path(folder) / "folded.onnx"
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(path)
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        folded = onnx.load(path)
    taken: set[str] = set()
    for index, node in enumerate(folded.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{index}"
        taken.add(node.name)
    onnx.helper.set_model_props(folded, {p.key: p.value for p in model.metadata_props})
    return infer_shapes(folded)
