"""Small networks, and a quantizer of a few lines, so that these tests need no `compress`."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 3, 16, 24)


def constant(name, values):
    return numpy_helper.from_array(np.asarray(values, np.float32), name)


def make_model(nodes, weights, outputs, opset=19, inputs=(("image", SHAPE),)):
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.checker.check_model(model, full_check=True)
    return model


def make_float_model(opset=19):
    """Conv, Relu, Conv with a residual Add, and an Exp head beside a plain one."""
    rng = np.random.default_rng(0)
    weights = [
        constant("w1", rng.normal(0, 0.2, (8, 3, 3, 3))),
        constant("b1", rng.normal(0, 0.1, 8)),
        constant("w2", rng.normal(0, 0.1, (8, 8, 3, 3))),
        constant("w3", rng.normal(0, 0.2, (4, 8, 1, 1))),
    ]
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"], "relu1"),
        helper.make_node("Conv", ["r", "w2"], ["b"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "r"], ["sum"], "add"),
        helper.make_node("Conv", ["sum", "w3"], ["logits"], "conv3"),
        helper.make_node("Exp", ["logits"], ["distances"], "exp"),
    ]
    return make_model(nodes, weights, ["logits", "distances"], opset)


def quantize(model, sample):
    """Puts Q/DQ on the inputs and per-channel DQ on the weights of every Conv."""
    from export.fp16_check import measure_ranges

    quantized = onnx.ModelProto()
    quantized.CopyFrom(model)
    ranges = measure_ranges(model, [sample])
    ranges |= {name: float(np.abs(values).max()) for name, values in sample.items()}
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    graph, nodes, done = quantized.graph, [], {}

    def add(name, values):
        graph.initializer.append(numpy_helper.from_array(values, name))

    for node in quantized.graph.node:
        if node.op_type == "Conv":
            source, weight = node.input[:2]
            if source not in done:
                done[source] = f"{source}_dq"
                add(f"{source}_scale", np.asarray(ranges[source] / 127, np.float32))
                add(f"{source}_zero", np.asarray(0, np.int8))
                qparams = [f"{source}_scale", f"{source}_zero"]
                nodes.append(
                    helper.make_node("QuantizeLinear", [source, *qparams], [f"{source}_q"])
                )
                nodes.append(
                    helper.make_node("DequantizeLinear", [f"{source}_q", *qparams], [done[source]])
                )
            values = weights[weight]
            scale = (np.abs(values).max(axis=(1, 2, 3)) / 127).astype(np.float32)
            add(f"{weight}_int8", np.round(values / scale[:, None, None, None]).astype(np.int8))
            add(f"{weight}_scale", scale)
            add(f"{weight}_zero", np.zeros(len(scale), np.int8))
            nodes.append(
                helper.make_node(
                    "DequantizeLinear",
                    [f"{weight}_int8", f"{weight}_scale", f"{weight}_zero"],
                    [f"{weight}_dq"],
                    axis=0,
                )
            )
            node.input[0], node.input[1] = done[source], f"{weight}_dq"
        nodes.append(node)
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for index, node in enumerate(graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    return onnx.shape_inference.infer_shapes(quantized)


@pytest.fixture
def sample():
    return {"image": np.random.default_rng(1).normal(0, 1, SHAPE).astype(np.float32)}


@pytest.fixture
def float_model():
    return make_float_model()


@pytest.fixture
def int8_model(float_model, sample):
    return quantize(float_model, sample)


@pytest.fixture
def make_int8_model(sample):
    """Returns a function from an opset to the quantized network in it."""
    return lambda opset: quantize(make_float_model(opset), sample)
