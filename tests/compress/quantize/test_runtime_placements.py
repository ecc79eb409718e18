"""What the placements of single runtimes decide on their own."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from artifacts.bias_quantization import BIAS_QUANTIZATION
from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.graph import Graph
from compress.quantize.placement import PLACEMENTS, OnnxRuntime, OpenVINO, TensorRT
from compress.quantize.settings import QuantizeSettings


def declined_reasons(placement, model):
    graph = Graph(model)
    return {graph.node(item.node).op_type: item.reason for item in placement.place(graph)[1]}


@pytest.mark.parametrize("target", PLACEMENTS)
def test_the_mean_of_a_distribution_stays_in_float(target, make_pattern):
    graph = Graph(make_pattern("distances"))
    placed, declined = PLACEMENTS[target]().place(graph)
    decoder = graph.nodes[-1].name
    assert decoder not in {item.node for item in placed}
    assert "Softmax" in next(item.reason for item in declined if item.node == decoder)


@pytest.mark.parametrize("placement", [TensorRT(), OpenVINO(integer_attention=True)])
def test_attention_is_quantized(make_pattern, placement):
    graph = Graph(make_pattern("attention"))
    placed, declined = placement.place(graph)
    products = [item for item in placed if graph.node(item.node).op_type == "MatMul"]
    assert [item.activations for item in products] == [(0, 1), (0, 1)]
    assert not declined


@pytest.mark.parametrize("target", ["openvino", "onnxruntime"])
def test_attention_stays_in_float_unless_it_was_measured(make_pattern, target):
    reasons = declined_reasons(PLACEMENTS[target](), make_pattern("attention"))
    assert "two computed matrices" in reasons["MatMul"]


@pytest.mark.parametrize("queries", ["computed", "constant"])
def test_both_products_of_an_attention_are_quantized_or_none(make_model, queries):
    """A decoder's first layer asks with learned queries, which no picture has changed yet."""
    make_node = onnx.helper.make_node
    nodes = [
        make_node("MatMul", ["x" if queries == "computed" else "asked", "keys"], ["scores"], "qk"),
        make_node("Where", ["is_masked", "low", "scores"], ["masked"], "mask"),
        make_node("Softmax", ["masked"], ["likely"], "softmax"),
        make_node("MatMul", ["likely", "values"], ["y"], "pv"),
    ]
    weights = {
        "asked": np.ones((1, 5, 4), np.float32),
        "is_masked": np.zeros((1, 1, 6), bool),
        "low": np.float32(-1e4),
    }
    inputs = {"x": (1, 5, 4), "keys": (1, 4, 6), "values": (1, 6, 4)}
    graph = Graph(make_model(nodes, weights, inputs, ["y"]))
    placed, declined = PLACEMENTS["tensorrt"]().place(graph)
    wanted = {"computed": {"qk", "pv"}, "constant": set()}[queries]
    assert {item.node for item in placed} == wanted
    assert {item.node for item in declined} == {"qk", "pv"} - wanted


def make_attention(make_model, keys):
    """The first of two queries looks at one key, the other at all of them alike."""
    rng = np.random.default_rng(0)
    make_node = onnx.helper.make_node
    nodes = [
        make_node("MatMul", ["x", "w"], ["queries"], "first"),
        make_node("MatMul", ["queries", "keys"], ["scores"], "qk"),
        make_node("Softmax", ["scores"], ["likely"], "softmax"),
        make_node("MatMul", ["likely", "values"], ["y"], "pv"),
    ]
    inputs = {"x": (1, 2, 4), "keys": (1, 4, keys), "values": (1, keys, 8)}
    model = make_model(nodes, {"w": np.eye(4, dtype=np.float32)}, inputs, ["y"])
    x = np.asarray([[[20, 0, 0, 0], [0, 0, 0, 0]]], np.float32)
    feeds = [
        {"x": x, "keys": rng.standard_normal((1, 4, keys)).astype(np.float32)}
        | {"values": 1 + rng.standard_normal((1, keys, 8)).astype(np.float32)}
        for _ in range(4)
    ]
    return model, feeds


def test_attention_to_many_keys_stays_in_float(make_model, run_model):
    placed = [
        {item.node for item in PLACEMENTS["tensorrt"]().place(Graph(model))[0]}
        for model in (make_attention(make_model, keys)[0] for keys in (254, 255))
    ]
    assert placed == [{"first", "qk", "pv"}, {"first"}]
    placed = [
        {item.node for item in OpenVINO(integer_attention=True).place(Graph(model))[0]}
        for model in (make_attention(make_model, keys)[0] for keys in (510, 511))
    ]
    assert placed == [{"first", "qk", "pv"}, {"first", "qk"}]
    model, samples = make_attention(make_model, 600)
    quantized = quantize_model(model, samples).model
    wanted, got = (run_model(item, samples[0])["y"][0, 1] for item in (model, quantized))
    assert np.square(got - wanted).sum() < 1e-3 * np.square(wanted).sum()


def test_openvino_adds_two_relus_in_integers(make_pattern):
    for target, wanted in (("openvino", [(0, 1)]), ("tensorrt", [])):
        graph = Graph(make_pattern("pyramid"))
        placed, _ = PLACEMENTS[target]().place(graph)
        adds = [item for item in placed if graph.node(item.node).op_type == "Add"]
        assert [item.activations for item in adds] == wanted


@pytest.mark.parametrize("change", ["other activation", "layer in float", "nobody reads it"])
def test_openvino_adds_others_in_float(make_pattern, change):
    model = make_pattern("pyramid")
    kept = frozenset()
    first = next(node for node in model.graph.node if node.op_type == "Relu")
    if change == "other activation":
        first.op_type = "Tanh"
    elif change == "layer in float":
        kept = frozenset({model.graph.node[0].name})
    else:
        model.graph.node[-1].op_type = "Sigmoid"
        del model.graph.node[-1].input[1:], model.graph.node[-1].attribute[:]
    graph = Graph(model)
    placed, _ = PLACEMENTS["openvino"]().place(graph, kept)
    assert not [item for item in placed if graph.node(item.node).op_type == "Add"]


def test_a_product_that_is_no_attention_is_declined(make_model):
    node = onnx.helper.make_node("MatMul", ["x", "z"], ["y"], "product")
    model = make_model([node], {}, {"x": (1, 4, 6), "z": (1, 6, 4)}, ["y"])
    for target in PLACEMENTS:
        placed, declined = PLACEMENTS[target]().place(Graph(model))
        assert placed == []
        assert "computed" in declined[0].reason


def test_onnxruntime_computes_the_shuffle_in_integers(make_pattern, samples, tmp_path):
    """Every layer with an integer weight is fused with its quantizers and its ReLU."""
    settings = QuantizeSettings(target="onnxruntime")
    model = quantize_model(make_pattern("shuffle"), samples[:2], settings).model
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(
        model.SerializeToString(), options, disabled_optimizers=[BIAS_QUANTIZATION]
    )
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    floats = {item.name for item in model.graph.initializer}
    layers = [
        node for node in model.graph.node if node.op_type == "Conv" and node.input[1] not in floats
    ]
    assert kinds.count("QLinearConv") == len(layers) > 2
    assert kinds.count("QLinearConcat") == 2


def test_integer_biases_stand_for_the_corrected_ones(make_pattern, samples, run_model):
    model = quantize_model(
        make_pattern("shuffle"), samples[:2], QuantizeSettings(target="onnxruntime")
    ).model
    biases = [item for item in model.graph.initializer if item.data_type == TensorProto.INT32]
    assert biases
    (name,) = (item.name for item in model.graph.output)
    wanted = run_model(make_pattern("shuffle"), samples[0])[name]
    error = run_model(model, samples[0])[name] - wanted
    assert np.square(error).sum() < 1e-3 * np.square(wanted).sum()


def test_biases_of_a_grouped_deconvolution_are_integers_too(make_model, samples, run_model):
    """Its weight has as many scales as a group has outputs, its bias as many as there are."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((16, 4, 4, 4)).astype(np.float32) / 4,
        "b": rng.standard_normal(16).astype(np.float32),
        "w1": rng.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12,
        "w0": rng.standard_normal((16, 3, 1, 1)).astype(np.float32),
    }
    make_node = onnx.helper.make_node
    nodes = [
        make_node("Conv", ["x", "w0"], ["c"], "first"),
        make_node("ConvTranspose", ["c", "w", "b"], ["d"], "up", group=4, strides=[2, 2]),
        make_node("Relu", ["d"], ["r"], "relu"),
        make_node("Conv", ["r", "w1"], ["z"], "last"),
        make_node("Tanh", ["z"], ["y"], "tanh"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])
    result = quantize_model(model, samples, QuantizeSettings(target="onnxruntime"))
    biases = [
        item for item in result.model.graph.initializer if item.data_type == TensorProto.INT32
    ]
    assert [16] in [list(item.dims) for item in biases]
    wanted, got = (run_model(item, samples[0])["y"] for item in (model, result.model))
    assert np.square(got - wanted).sum() < 1e-3 * np.square(wanted).sum()


@pytest.mark.parametrize(
    ("placement", "pattern", "reason"),
    [
        (OnnxRuntime(fewest_multiplications=10**9), "shuffle", "too few to pay for its quantizers"),
        (OnnxRuntime(fewest_multiplications=0, fewest_at_border=100), "gate", "computes in float"),
        (OnnxRuntime(), "upsample", "output of the network"),
    ],
)
def test_onnxruntime_leaves_alone_what_does_not_pay(placement, pattern, reason, make_pattern):
    _, declined = placement.place(Graph(make_pattern(pattern)))
    assert any(reason in item.reason for item in declined)


@pytest.mark.parametrize(
    ("ends", "outputs", "reason"),
    [([], ["m"], "an output of the network"), ([("Tanh", ["m"], ["y"])], ["y"], "(Tanh) needs")],
)
def test_onnxruntime_leaves_in_float_what_is_little_work_and_needed_so_once_it_was_moved(
    make_model, ends, outputs, reason
):
    """As the features that convolutions with computed weights read."""
    rng = np.random.default_rng(0)
    nodes = [
        ("Conv", ["x", "w0"], ["c"]),
        ("Conv", ["c", "w1"], ["z"]),
        ("Transpose", ["z"], ["t"]),
        ("Unsqueeze", ["t", "axis"], ["m"]),
    ]
    made = [onnx.helper.make_node(*item, name=item[2][0]) for item in (*nodes, *ends)]
    weights = {
        "w0": rng.standard_normal((32, 3, 3, 3)).astype(np.float32),
        "w1": rng.standard_normal((32, 32, 1, 1)).astype(np.float32),
    }
    weights["axis"] = np.array([1], np.int64)
    graph = Graph(make_model(made, weights, {"x": (1, 3, 24, 32)}, outputs))
    placed, declined = OnnxRuntime().place(graph)
    assert {item.node for item in placed if item.weight is not None} == {"c"}
    assert reason in next(item.reason for item in declined if item.node == "z")


def test_onnxruntime_adds_to_a_sum_in_float_that_all_others_read_so(make_model):
    """As optical flow is refined step by step: rounded, each step would be lost in the whole."""
    nodes = [("Identity", ["x"], ["flow0"])]
    for step in range(2):
        flow, wave, wide, change = (f"{name}{step}" for name in ("flow", "wave", "wide", "change"))
        nodes += [
            ("Sin", [flow], [wave]),
            ("Conv", [wave, "w0"], [wide]),
            ("Conv", [wide, "w1"], [change]),
            ("Add", [flow, change], [f"flow{step + 1}"]),
        ]
    made = [onnx.helper.make_node(*item, name=item[2][0]) for item in nodes]
    rng = np.random.default_rng(0)
    weights = {
        "w0": rng.standard_normal((32, 3, 1, 1)).astype(np.float32),
        "w1": rng.standard_normal((3, 32, 1, 1)).astype(np.float32),
    }
    graph = Graph(make_model(made, weights, {"x": (1, 3, 24, 32)}, ["flow2"]))
    placed, declined = OnnxRuntime(fewest_multiplications=0, fewest_at_border=0).place(graph)
    read = {item.node: item.activations for item in placed}
    assert read["flow1"] == read["flow2"] == (1,)
    assert "others read 'flow1' in float" in next(
        item.reason for item in declined if item.node == "flow2"
    )


def test_onnxruntime_leaves_in_float_what_is_named_behind_a_layer(make_model):
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal((32, size, 3, 3)).astype(np.float32)
        for name, size in (("w0", 3), ("w1", 32))
    }
    make_node = onnx.helper.make_node
    nodes = [
        make_node("Conv", ["x", "w0"], ["c"], "first"),
        make_node("LeakyRelu", ["c"], ["r"], "leaky"),
        make_node("Conv", ["r", "w1"], ["z"], "second"),
        make_node("Tanh", ["z"], ["y"], "tanh"),
    ]
    graph = Graph(make_model(nodes, weights, {"x": (1, 3, 24, 32)}, ["y"]))
    placement = OnnxRuntime(fewest_at_border=1)
    names = [{item.node for item in placement.place(graph)[0]}]
    names.append({item.node for item in placement.place(graph, frozenset({"leaky"}))[0]})
    assert names[0] - names[1] == {"leaky"}


def test_an_offset_that_was_corrected_is_corrected_once(make_model):
    """In the walk as in the file: what reads an integer Add reads the offset that is stored.

    With 8 bits the Add is a part of a Gemm.
    """
    rng = np.random.default_rng(0)
    make_node = onnx.helper.make_node
    nodes = [
        make_node("MatMul", ["x", "first"], ["a"], "first"),
        make_node("Add", ["a", "offset"], ["b"], "offset"),
        make_node("MatMul", ["b", "second"], ["c"], "second"),
        make_node("Add", ["c", "last"], ["y"], "last"),
    ]
    weights = {
        "first": rng.normal(0.02, 0.05, (256, 192)),
        "offset": rng.normal(0, 1, 192),
        "second": rng.normal(0.02, 0.05, (192, 192)),
        "last": rng.normal(0, 1, 192),
    }
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    model = make_model(nodes, weights, {"x": (1, 16, 256)}, ["y"])
    samples = [{"x": rng.gamma(0.3, 1, (1, 16, 256)).astype(np.float32)} for _ in range(4)]
    result = quantize_model(
        model, samples, QuantizeSettings(target="onnxruntime", activations="int16")
    )
    assert "offset" in {layer.node for layer in result.layers}
    found = compare_models(model, result.model, samples)["outputs"]["y"]["sqnr_db"]
    assert result.outputs_db["y"] == pytest.approx(found, abs=0.1)


def make_head(make_model, ends, outputs, width):
    """Two Gemms, the second of `width` outputs, and what reads it."""
    rng = np.random.default_rng(0)
    weights = {
        "w0": rng.standard_normal((300, 96)).astype(np.float32) / 10,
        "w1": rng.standard_normal((width, 300)).astype(np.float32) / 17,
        "wide": rng.standard_normal((300, width)).astype(np.float32) / 17,
        "rows": np.array([1, 3, -1], np.int64),
    }
    nodes = [
        onnx.helper.make_node("Gemm", ["x", "w0"], ["h"], "hidden", transB=1),
        onnx.helper.make_node("Relu", ["h"], ["r"], "relu"),
        onnx.helper.make_node("Gemm", ["r", "w1"], ["z"], "head", transB=1),
        *(onnx.helper.make_node(*item[:4], **item[4]) for item in ends),
    ]
    return make_model(nodes, weights, {"x": (1, 96)}, outputs)


@pytest.mark.parametrize(
    ("ends", "outputs"),
    [
        (
            [("Reshape", ["z", "rows"], ["m"], "move", {}), ("Softmax", ["m"], ["y"], "s", {})],
            ["y"],
        ),
        ([("LeakyRelu", ["z"], ["a"], "act", {}), ("Tanh", ["a"], ["y"], "tanh", {})], ["y"]),
        ([], ["z"]),
    ],
)
def test_onnxruntime_writes_floats_from_the_integers_of_a_gemm(make_model, tmp_path, ends, outputs):
    """What only operators in float read, or nobody, loses nothing by 8 bits more."""
    rng = np.random.default_rng(1)
    feeds = [{"x": rng.standard_normal((1, 96)).astype(np.float32)} for _ in range(8)]
    settings = QuantizeSettings(target="onnxruntime")
    result = quantize_model(make_head(make_model, ends, outputs, 300), feeds, settings)
    rounded = [
        node.input[0] for node in result.model.graph.node if node.op_type == "QuantizeLinear"
    ]
    assert rounded == ["x", "r"]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(
        result.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    kernels = onnx.load(tmp_path / "optimized.onnx").graph.node
    assert [len(node.input) for node in kernels if node.op_type == "QGemm"] == [9, 7]


@pytest.mark.parametrize("is_biased", [True, False])
def test_onnxruntime_multiplies_rows_by_a_gemm(make_model, run_model, tmp_path, is_biased):
    """A MatMul in integers would round its result before the bias is added, and once more."""
    rng = np.random.default_rng(0)
    weights = {
        "scale": np.geomspace(0.05, 5, 96).astype(np.float32),
        "shift": np.zeros(96, np.float32),
        "w": rng.standard_normal((96, 64)).astype(np.float32) / 10,
        "b": rng.standard_normal(64).astype(np.float32),
    }
    nodes = [
        onnx.helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["n"], "norm"),
        onnx.helper.make_node("MatMul", ["n", "w"], ["m"], "product"),
        *([onnx.helper.make_node("Add", ["b", "m"], ["a"], "bias")] if is_biased else []),
        onnx.helper.make_node("Tanh", ["a" if is_biased else "m"], ["y"], "tanh"),
    ]
    model = make_model(nodes, weights, {"x": (1, 7, 5, 96)}, ["y"])
    feeds = [{"x": rng.standard_normal((1, 7, 5, 96)).astype(np.float32)} for _ in range(8)]
    result = quantize_model(model, feeds, QuantizeSettings(target="onnxruntime"))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(
        result.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    kernels = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert sorted(set(kernels) - {"Reshape"}) == [
        *("LayerNormalization", "QGemm", "QuantizeLinear", "Tanh")
    ]
    wanted, got = (run_model(item, feeds[0])["y"] for item in (model, result.model))
    assert np.square(got - wanted).sum() < 1e-3 * np.square(wanted).sum()


def test_onnxruntime_rounds_a_gemm_for_the_layers_that_read_it(make_model):
    """The kernel writes integers or floats, not both: so all readers get what one has to have."""
    ends = [
        ("Gemm", ["z", "wide"], ["g"], "next", {"transB": 1}),
        ("Tanh", ["z"], ["t"], "tanh", {}),
    ]
    placed, _ = OnnxRuntime().place(Graph(make_head(make_model, ends, ["g", "t"], 300)))
    read = {item.node: item.activations for item in placed}
    assert read["next"] == read["tanh"] == (0,)


def test_onnxruntime_does_not_write_floats_where_it_would_add_a_relu_to_a_gemm(make_model):
    """It adds the Relu to the float Gemm, and dequantizes all weights for that."""
    ends = [
        ("Relu", ["z"], ["a"], "act", {}),
        ("Sigmoid", ["a"], ["y"], "gate", {}),
    ]
    placed, _ = OnnxRuntime().place(Graph(make_head(make_model, ends, ["y"], 300)))
    assert "gate" in {item.node for item in placed}


def test_onnxruntime_leaves_a_small_gemm_at_the_end_in_float(make_model):
    graph = Graph(make_head(make_model, [], ["z"], 80))
    placed, declined = OnnxRuntime().place(graph)
    assert {item.node for item in placed if item.weight is not None} == {"hidden"}
    assert "output of the network" in next(item.reason for item in declined if item.node == "head")
