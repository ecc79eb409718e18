"""Runs parts of an ONNX graph with onnxruntime, so that every operator it knows is supported."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
from numpy.typing import NDArray
from onnx import helper

from artifacts.errors import InputError
from artifacts.graph_reading import read_tensors
from compress.quantize.graph import Array, Graph
from compress.quantize.shared_memory import share_memory

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

SUBGRAPH_IR_VERSION = 10


class Subgraph:
    """Some nodes of a graph, opened for running.

    Args:
        graph: where the nodes come from (its operator sets and functions are used).
        nodes: the nodes, in topological order.
        weights: the constants to use, which may differ from the graph's.
        feeds: one example array per tensor that comes from outside, for its type.
        outputs: the tensors to return.
        is_exact: without onnxruntime's fusions; Q/DQ pairs are computed as written anyway.
        threads: how many one run takes; None for all processors.
        is_step: one of many that run one after the other, and share their working memory.

    Raises:
        InputError: onnxruntime cannot run an operator; the message names it.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[onnx.NodeProto],
        weights: Mapping[str, Array],
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        is_exact: bool = False,
        threads: int | None = None,
        is_step: bool = False,
    ) -> None:
        self.inputs = list(feeds)
        self.outputs = list(outputs)
        needed = {name for node in nodes for name in read_tensors(node)} - set(feeds)
        model = helper.make_model(
            helper.make_graph(
                list(nodes),
                "subgraph",
                [_declare(graph, name, value) for name, value in feeds.items()],
                [onnx.ValueInfoProto(name=name) for name in outputs],
                [
                    onnx.numpy_helper.from_array(weights[name], name)
                    for name in sorted(needed & weights.keys())
                ],
            ),
            opset_imports=graph.opset_imports,
            functions=graph.functions,
        )
        model.ir_version = SUBGRAPH_IR_VERSION
        try:
            self._session = _open_session(
                model, is_exact=is_exact, threads=threads, is_step=is_step
            )
        except Exception as error:
            operators = ", ".join(sorted({node.op_type for node in nodes}))
            raise InputError(
                f"onnxruntime cannot run node '{nodes[0].name}' ({operators}): {error}"
            ) from error

    def run(self, feeds: Mapping[str, Array]) -> dict[str, NDArray[Any]]:
        """Returns the outputs for one set of inputs."""
        values = self._session.run(self.outputs, {name: feeds[name] for name in self.inputs})
        return dict(zip(self.outputs, values, strict=True))


def _declare(graph: Graph, name: str, example: Array) -> onnx.ValueInfoProto:
    """Returns the type of a tensor that comes from outside.

    Where its shape is not known beforehand, other samples may have more or fewer rows than this
    one: the regions of interest of a detector in two stages.
    """
    is_known = graph.shapes.get(name) == example.shape
    shape = example.shape if is_known else (None,) * example.ndim
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(example.dtype), shape
    )


def _open_session(
    model: onnx.ModelProto, *, is_exact: bool, threads: int | None, is_step: bool
) -> "InferenceSession":
    """Opens a model; without fusions if they cannot be.

    onnxruntime 1.31 may fuse away a tensor that was asked for, and then does not open the model.
    """
    import onnxruntime as ort

    levels = ort.GraphOptimizationLevel
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = levels.ORT_DISABLE_ALL if is_exact else levels.ORT_ENABLE_ALL
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.enable_mem_pattern = False
    if is_step:
        share_memory(options)
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return ort.InferenceSession(
            model.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            enable_fallback=0,
        )
    except Exception:
        if is_exact:
            raise
        return _open_session(model, is_exact=True, threads=threads, is_step=is_step)


def run_constant(graph: Graph, node: onnx.NodeProto) -> list[Array]:
    """Computes a node all of whose inputs are constants."""
    outputs = [name for name in node.output if name]
    values = Subgraph(graph, [node], graph.weights, {}, outputs, is_exact=True).run({})
    return [values[name] for name in outputs]
