"""Small networks and calibration samples for the quantizer's tests."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.processor import read_flags
from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.result import QuantizeResult
from compress.quantize.settings import QuantizeSettings
from compress.quantize.simplify import simplify
from tests.openvino_agreement import measure_agreement_db, run_as_written

Array = np.ndarray


@pytest.fixture
def amx() -> None:
    """Skips what goes wrong only in OpenVINO's kernels for AMX, on processors without."""
    if "amx_int8" not in read_flags():
        pytest.skip("only OpenVINO's kernels for AMX are wrong, and this processor has none")


@pytest.fixture
def make_model() -> Callable[..., onnx.ModelProto]:
    def make(
        nodes: Sequence[onnx.NodeProto],
        weights: dict[str, Array],
        inputs: dict[str, tuple[int, ...]],
        outputs: Sequence[str],
        opset: int = 17,
        integers: Sequence[str] = (),
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            list(nodes),
            "test",
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                for name, shape in inputs.items()
            ],
            [
                helper.make_tensor_value_info(
                    name, TensorProto.INT64 if name in integers else TensorProto.FLOAT, None
                )
                for name in outputs
            ],
            [numpy_helper.from_array(value, name) for name, value in weights.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        model.ir_version = 10
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(model)
        return model

    return make


@pytest.fixture
def run_model() -> Callable[[onnx.ModelProto, dict[str, Array]], dict[str, Array]]:
    return run_as_written


@pytest.fixture
def agreement_db() -> Callable[..., float]:
    """Returns a function that says how near OpenVINO comes to what a file says, in dB."""
    return measure_agreement_db


@pytest.fixture
def quantize_and_compare(
    agreement_db: Callable[..., float], exact_weights: str
) -> Callable[..., tuple[QuantizeResult, float]]:
    """Returns a function that quantizes a network by one sample, and compares as `agreement_db`."""

    def quantize(
        model: onnx.ModelProto, x: Array, target: str = "openvino", **options: Any
    ) -> tuple[QuantizeResult, float]:
        settings = QuantizeSettings(**{"target": target, "weights": exact_weights} | options)
        result = quantize_model(model, [{"x": x}], settings)
        return result, agreement_db(result.model, {"x": x})

    return quantize


@pytest.fixture
def rewrite(run_model: Any) -> Callable[..., tuple[list[str], Graph]]:
    """Returns a function that applies a form; the results must stay the model's.

    It gives what the form says it changed, and the rewritten graph.
    """

    def apply(
        model: onnx.ModelProto,
        x: Array,
        form: Callable[[Graph], list[str]],
        tolerance: float = 1e-6,
    ) -> tuple[list[str], Graph]:
        graph = Graph(model)
        done = form(graph)
        expected, got = run_model(model, {"x": x}), run_model(graph.to_model(), {"x": x})
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=tolerance)
        return done, graph

    return apply


@pytest.fixture
def simplified(run_model: Any) -> Callable[..., list[onnx.NodeProto]]:
    """Returns a function that simplifies a network and gives its nodes; `y` must stay."""

    def apply(
        model: onnx.ModelProto, feeds: dict[str, Array], rtol: float, atol: float
    ) -> list[onnx.NodeProto]:
        graph = Graph(model)
        simplify(graph)
        wanted, got = (run_model(item, feeds)["y"] for item in (model, graph.to_model()))
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)
        return graph.nodes

    return apply


@pytest.fixture
def residual_model(make_model: Any) -> onnx.ModelProto:
    """Conv-BN-ReLU, a residual block with a depthwise Conv, a ConvTranspose and two heads."""
    rng = np.random.default_rng(0)

    def normal(*shape: int, spread: float = 0.2) -> Array:
        return (rng.standard_normal(shape) * spread).astype(np.float32)

    weights = {
        "w0": normal(8, 3, 3, 3),
        "gamma": rng.uniform(0.5, 1.5, 8).astype(np.float32),
        "beta": normal(8),
        "mean": normal(8),
        "var": rng.uniform(0.5, 1.5, 8).astype(np.float32),
        "w1": normal(8, 1, 3, 3),
        "b1": normal(8),
        "w2": normal(8, 8, 1, 1),
        "w3": normal(8, 4, 2, 2),
        "w4": normal(5, 8),
        "b4": normal(5),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization", ["c0", "gamma", "beta", "mean", "var"], ["n0"], "norm"
        ),
        helper.make_node("Relu", ["n0"], ["r0"], "relu0"),
        helper.make_node(
            "Conv", ["r0", "w1", "b1"], ["c1"], "depthwise", group=8, pads=[1, 1, 1, 1]
        ),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "pointwise"),
        helper.make_node("Add", ["c2", "r0"], ["s"], "residual"),
        helper.make_node("Relu", ["s"], ["trunk"], "relu2"),
        helper.make_node("ConvTranspose", ["trunk", "w3"], ["dense"], "upsample", strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["trunk"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["classes"], "classify", transB=1),
    ]
    return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["dense", "classes"])


@pytest.fixture
def samples() -> list[dict[str, Array]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((1, 3, 12, 16)).astype(np.float32)} for _ in range(6)]


@pytest.fixture
def make_pattern(make_model: Any) -> Callable[[str], onnx.ModelProto]:
    """Makes a network of `network_patterns.PATTERNS`."""
    module = importlib.util.spec_from_file_location(
        "network_patterns", Path(__file__).with_name("network_patterns.py")
    )
    assert module is not None
    assert module.loader is not None
    patterns = importlib.util.module_from_spec(module)
    module.loader.exec_module(patterns)

    def make(name: str) -> onnx.ModelProto:
        net = patterns.Layers()
        result = patterns.PATTERNS[name](net)
        return make_model(net.nodes, net.weights, {"x": (1, 3, 12, 16)}, [result])

    return make


@pytest.fixture
def run_limited_openvino(tmp_path: Path) -> Callable[..., dict[str, Array]]:
    """Runs OpenVINO with a part of the processor's instructions, in a child: it reads them once."""

    def run(instructions: str, model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
        onnx.save(model, tmp_path / "model.onnx")
        np.savez(tmp_path / "feeds.npz", **feeds)
        subprocess.run(
            [sys.executable, "-c", _OPENVINO_CHILD, str(tmp_path)],
            check=True,
            env=os.environ | {"ONEDNN_MAX_CPU_ISA": instructions},
        )
        with np.load(tmp_path / "results.npz") as results:
            return dict(results)

    return run


_OPENVINO_CHILD = """
import sys
import numpy as np
import openvino

folder = sys.argv[1]
with np.load(f"{folder}/feeds.npz") as feeds:
    inputs = dict(feeds)
core = openvino.Core()
compiled = core.compile_model(
    core.read_model(f"{folder}/model.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
)
results = compiled(inputs)
np.savez(f"{folder}/results.npz", **{port.get_any_name(): results[port] for port in results})
"""


@pytest.fixture
def outlier_model(make_model: Any) -> tuple[onnx.ModelProto, list[dict[str, Array]]]:
    """stem -> two heads; `left` reads a tensor with one channel 200 times larger than the rest."""
    rng = np.random.default_rng(0)
    spread = np.ones((8, 1, 1, 1), np.float32)
    spread[0] = 200.0
    reader = rng.standard_normal((4, 8, 1, 1)).astype(np.float32)
    reader[:, 0] /= 200.0
    weights = {
        "w0": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "w1": rng.standard_normal((8, 8, 1, 1)).astype(np.float32) * spread,
        "w2": reader,
        "w3": rng.standard_normal((4, 8, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["a"], ["s"], "squash"),
        helper.make_node("Conv", ["s", "w1"], ["b"], "wide"),
        helper.make_node("Sin", ["b"], ["t"], "wave"),
        helper.make_node("Add", ["b", "t"], ["u"], "blend"),
        helper.make_node("Conv", ["u", "w2"], ["left"], "reader"),
        helper.make_node("Conv", ["s", "w3"], ["right"], "calm"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 12)}, ["left", "right"])
    samples = [{"x": rng.standard_normal((1, 3, 12, 12)).astype(np.float32)} for _ in range(3)]
    return model, samples
