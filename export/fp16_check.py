"""Measures what FP16 costs a network, without a GPU.

onnxruntime's CPU provider has hardly any FP16 kernels: it computes FP16 nodes in FP32 and drops the
casts in between, so it would show neither rounding nor overflow. Here the strongly typed graph is
therefore turned into an FP32 one in which an explicit Cast there and back rounds every FP16 tensor.
That is a little harsher than a GPU, which keeps fused results in wider registers.

What FP16 costs a quantized network is measured without its Q/DQ: a rounding that moves an
activation across the edge between two int8 steps changes it by a whole step, which says nothing
about FP16.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from artifacts.onnxruntime_refusal import refusal
from export.fp16_plan import DEQUANTIZE, QUANTIZE

_FP16 = TensorProto.FLOAT16
_FP32 = TensorProto.FLOAT

GROUP_BYTES = 1 << 29
"""Inner tensors whose ranges are measured in one run of the network."""

Arrays = dict[str, NDArray[Any]]


def simulate_fp16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns an FP32 model that rounds wherever the strongly typed one would.

    Inputs and outputs are FP32, too, where those of the model are FP16.

    Args:
        model: strongly typed and shape-inferred.
    """
    simulation = onnx.ModelProto()
    simulation.CopyFrom(model)
    graph = simulation.graph
    halves = {value.name for value in graph.value_info if value.type.tensor_type.elem_type == _FP16}
    halves |= _widen_values(graph.output)
    _widen_values(graph.input)
    for tensor in graph.initializer:
        if tensor.data_type == _FP16:
            values = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    nodes = []
    for node in graph.node:
        if node.op_type == "Cast":
            for attribute in node.attribute:
                if attribute.name == "to" and attribute.i == _FP16:
                    attribute.i = _FP32
        rounded = [place for place, name in enumerate(node.output) if name in halves]
        names = list(node.output)
        for place in rounded:
            node.output[place] = f"{names[place]}/exact"
        nodes.append(node)
        for place in rounded:
            nodes += _round(f"{names[place]}/exact", names[place])
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    return simulation


def _widen_values(values: Iterable[onnx.ValueInfoProto]) -> set[str]:
    """Makes FP32 of the FP16 ones, and returns their names."""
    halves = [value for value in values if value.type.tensor_type.elem_type == _FP16]
    for value in halves:
        value.type.tensor_type.elem_type = _FP32
    return {value.name for value in halves}


def _round(source: str, target: str) -> list[onnx.NodeProto]:
    half = f"{target}/half"
    return [
        helper.make_node("Cast", [source], [half], to=_FP16),
        helper.make_node("Cast", [half], [target], to=_FP32),
    ]


def run_model(
    model: onnx.ModelProto, samples: Sequence[Mapping[str, NDArray[Any]]]
) -> list[Arrays]:
    """Runs a model on samples with onnxruntime, as it is written: without optimisations.

    Samples in FP16 are widened where the model reads FP32, as a simulation does.

    Raises:
        InputError: onnxruntime cannot run it.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [value.name for value in session.get_outputs()]
        wide = {value.name for value in session.get_inputs() if value.type == "tensor(float)"}
        feeds = [
            {name: value.astype(np.float32) if name in wide else value for name, value in s.items()}
            for s in samples
        ]
        return [dict(zip(names, session.run(None, feed), strict=True)) for feed in feeds]
    except Exception as error:
        raise refusal(error) from error


def measure_ranges(
    model: onnx.ModelProto, samples: Sequence[Mapping[str, NDArray[Any]]]
) -> dict[str, float]:
    """Returns the largest magnitude that each float tensor of a network reaches on samples.

    The tensors are looked at in groups of at most `GROUP_BYTES`, one run of the network per group.

    Args:
        model: shape-inferred, in FP32.
        samples: input arrays by name.
    """
    ranges: dict[str, float] = {}
    for group in _group_tensors(model):
        exposed = onnx.ModelProto()
        exposed.CopyFrom(model)
        exposed.graph.output.extend(group)
        for sample in samples:
            for name, values in run_model(exposed, [sample])[0].items():
                if values.dtype == np.float32:
                    peak = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
                    ranges[name] = max(ranges.get(name, 0.0), peak)
    return ranges


def _group_tensors(model: onnx.ModelProto) -> list[list[onnx.ValueInfoProto]]:
    """Splits the network's inner float tensors into groups whose values fit into memory."""
    known = {value.name for value in model.graph.output}
    groups: list[list[onnx.ValueInfoProto]] = [[]]
    size_bytes = 0
    for value in model.graph.value_info:
        kind = value.type.tensor_type
        if kind.elem_type != _FP32 or value.name in known:
            continue
        value_bytes = 4 * math.prod(max(dim.dim_value, 1) for dim in kind.shape.dim)
        if groups[-1] and size_bytes + value_bytes > GROUP_BYTES:
            groups.append([])
            size_bytes = 0
        groups[-1].append(value)
        size_bytes += value_bytes
    return groups


def count_precisions(model: onnx.ModelProto) -> dict[str, int]:
    """Counts the computing nodes of a strongly typed network by precision.

    A node is `int8` if a DequantizeLinear feeds it, else `fp16` or `fp32` by its first float
    output; Cast, Q and DQ are not counted.
    """
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*model.graph.value_info, *model.graph.output)
    }
    dequantized = {
        name for node in model.graph.node if node.op_type == DEQUANTIZE for name in node.output
    }
    counts = {"int8": 0, "fp16": 0, "fp32": 0}
    for node in model.graph.node:
        if node.op_type in ("Cast", QUANTIZE, DEQUANTIZE):
            continue
        kind = types.get(node.output[0])
        if len(node.input) > 1 and set(node.input[:2]) <= dequantized:
            counts["int8"] += 1
        elif kind in (_FP16, _FP32):
            counts["fp16" if kind == _FP16 else "fp32"] += 1
    return counts
