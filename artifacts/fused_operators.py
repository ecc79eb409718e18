"""Writes the operators that onnxruntime's optimizer makes as the standard ones that they stand for.

A file that onnxruntime saved after its own optimizations (`optimized_model_filepath`, level
extended) joins a Conv with the activation behind it, and so on, in operators of the domain
com.microsoft. No other runtime has them, no layer in them would be quantized, and their shapes are
not known. What has no standard form here stays as it is.
"""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from artifacts.graph_checks import model_opset
from artifacts.graph_reading import unused_name

DOMAIN = "com.microsoft"
OLDEST_OPSET = 13
_QUICK_GELU_ALPHA = 1.702
_PLAIN = ("Relu", "Sigmoid", "Tanh")


def write_standard_operators(model: onnx.ModelProto) -> list[str]:
    """Writes fused operators of the main graph as standard ones, in place; returns their outputs.

    Args:
        model: with opset 13 or newer, else it is left alone; its other nodes stay as they are.
    """
    if model_opset(model) < OLDEST_OPSET:
        return []
    written, nodes = [], []
    writer = _Writer(model.graph)
    for node in model.graph.node:
        form = _FORMS.get(node.op_type) if node.domain == DOMAIN else None
        made = writer.write(node, form) if form is not None else []
        written += [node.output[0]] if made else []
        nodes += made or [node]
    if written:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    return written


class _Writer:
    """Collects the nodes that stand for one; their names begin with that of its output."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._taken = {name for node in graph.node for name in (*node.input, *node.output)}
        self._taken |= {item.name for item in (*graph.initializer, *graph.input)}
        self._nodes: list[onnx.NodeProto] = []
        self._stem = ""

    def write(self, node: onnx.NodeProto, form: "_Form") -> list[onnx.NodeProto]:
        """Returns the nodes for a fused one; [] where there is no form for what it asks for."""
        self._nodes, self._stem = [], node.output[0]
        settings = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        result = form(self, node, settings)
        if not result:
            return []
        last = self._nodes[-1]
        last.output[0], last.name = node.output[0], node.name or last.name
        return self._nodes

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        """Adds a node; returns its output."""
        name = self._unused(operator)
        self._nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def constant(self, value: float) -> str:
        """Adds a float32 scalar; returns its name."""
        name = self._unused("constant")
        self._graph.initializer.append(numpy_helper.from_array(np.float32(value), name))
        return name

    def _unused(self, kind: str) -> str:
        name = unused_name(f"{self._stem}_{kind}", self._taken)
        self._taken.add(name)
        return name


_Settings = dict[str, object]
_Form = Callable[[_Writer, onnx.NodeProto, _Settings], str]


def _read_floats(value: object) -> list[float]:
    return [float(item) for item in value] if isinstance(value, list) else []


def _activate(writer: _Writer, data: str, kind: str, parameters: list[float]) -> str:
    """Writes an activation of a fused operator; returns "" for one that is not known."""
    if kind in _PLAIN:
        return writer.add(kind, data)
    if kind == "LeakyRelu" and parameters:
        return writer.add(kind, data, alpha=parameters[0])
    if kind == "HardSigmoid" and len(parameters) > 1:
        return writer.add(kind, data, alpha=parameters[0], beta=parameters[1])
    if kind == "Clip" and len(parameters) > 1:
        return writer.add(kind, data, *(writer.constant(value) for value in parameters[:2]))
    return ""


def _write_conv(writer: _Writer, node: onnx.NodeProto, settings: _Settings) -> str:
    """Writes activation(Conv(x, w, b) + z)."""
    kind = settings.pop("activation", b"")
    parameters = _read_floats(settings.pop("activation_params", []))
    added = node.input[3] if len(node.input) > 3 else ""
    result = writer.add("Conv", *[name for name in node.input[:3] if name], **settings)
    if added:
        result = writer.add("Add", result, added)
    if not kind:
        return result
    return _activate(writer, result, _read_text(kind), parameters)


def _write_gemm(writer: _Writer, node: onnx.NodeProto, settings: _Settings) -> str:
    """Writes activation(Gemm(a, b, c))."""
    kind = settings.pop("activation", b"")
    values = [settings.pop(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    parameters = _read_floats([value for value in values if value is not None])
    result = writer.add("Gemm", *[name for name in node.input[:3] if name], **settings)
    return _activate(writer, result, _read_text(kind), parameters) if kind else result


def _write_matmul(writer: _Writer, node: onnx.NodeProto, settings: _Settings) -> str:
    """Writes alpha * (a @ b); one that transposes has no form."""
    if any(settings.get(name) for name in ("transA", "transB", "transBatchA", "transBatchB")):
        return ""
    product = writer.add("MatMul", *node.input)
    alpha = _read_number(settings, "alpha", 1.0)
    return writer.add("Mul", product, writer.constant(alpha))


def _write_quick_gelu(writer: _Writer, node: onnx.NodeProto, settings: _Settings) -> str:
    """Writes x * sigmoid(alpha * x)."""
    data = gate = node.input[0]
    alpha = _read_number(settings, "alpha", _QUICK_GELU_ALPHA)
    if alpha != 1.0:
        gate = writer.add("Mul", data, writer.constant(alpha))
    return writer.add("Mul", data, writer.add("Sigmoid", gate))


def _write_gelu(writer: _Writer, node: onnx.NodeProto, settings: _Settings) -> str:
    """Writes x / 2 * (1 + erf(x / sqrt(2))), of the sum with a bias where there is one."""
    del settings
    data = node.input[0]
    if len(node.input) > 1:
        data = writer.add("Add", data, node.input[1])
    error = writer.add("Erf", writer.add("Div", data, writer.constant(2**0.5)))
    factor = writer.add("Add", error, writer.constant(1.0))
    return writer.add("Mul", writer.add("Mul", data, factor), writer.constant(0.5))


def _read_number(settings: _Settings, name: str, default: float) -> float:
    value = settings.get(name)
    return float(value) if isinstance(value, (int, float)) else default


def _read_text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


_FORMS: dict[str, _Form] = {
    "FusedConv": _write_conv,
    "FusedGemm": _write_gemm,
    "FusedMatMul": _write_matmul,
    "QuickGelu": _write_quick_gelu,
    "Gelu": _write_gelu,
    "BiasGelu": _write_gelu,
}
