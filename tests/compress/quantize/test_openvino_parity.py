"""OpenVINO computes what the file says, for every placement and the patterns it rewrites."""

from dataclasses import replace
from functools import partial

import numpy as np
import onnx
import openvino
import pytest
from onnx import helper

from artifacts.openvino_attention import put_first
from artifacts.openvino_guard import GUARD_SUFFIX, remove_guards
from artifacts.processor import read_flags
from compress.quantize.api import quantize_model
from compress.quantize.placement import PLACEMENTS
from compress.quantize.prepare import FEW_SAMPLES
from compress.quantize.settings import QuantizeSettings


@pytest.fixture(scope="module")
def schemes(exact_weights):
    """The settings of each of `SCHEMES`, with weights that this processor does not miscompute."""
    return {name: replace(settings, weights=exact_weights) for name, settings in SCHEMES.items()}


@pytest.fixture
def run_openvino():
    core = openvino.Core()

    def run(model, feeds):
        compiled = core.compile_model(
            core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
        )
        results = compiled(list(feeds.values()))
        return {next(iter(port.get_names())): value for port, value in results.items()}

    return run


@pytest.fixture
def run_openvino_without_amx(run_openvino, run_limited_openvino):
    """As `run_openvino`, by the kernels that go wrong: those for AMX do not.

    Processors without AMX have nothing to be kept from: the limit takes AVX-VNNI from them.
    """
    if "amx_int8" not in read_flags():
        return run_openvino
    return partial(run_limited_openvino, "AVX512_CORE_VNNI")


def concat_model(make_model, tail):
    """Two branches, one of them never negative, joined and read by a Conv."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32) * 0.3
        for name, shape in (("wa", (8, 3, 3, 3)), ("wb", (8, 3, 1, 1)), ("wc", (6, 16, 3, 3)))
    }
    nodes = [
        helper.make_node("Conv", ["x", "wa"], ["a"], "left", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["ra"], "relu"),
        helper.make_node("Conv", ["x", "wb"], ["b"], "right"),
        helper.make_node("Concat", ["ra", "b"], ["c"], "join", axis=1),
    ]
    last = "c"
    if tail:
        options = {"kernel_shape": [2, 2], "strides": [2, 2]} if tail == "MaxPool" else {}
        nodes.append(helper.make_node(tail, ["c"], ["t"], "tail", **options))
        last = "t"
    nodes.append(helper.make_node("Conv", [last, "wc"], ["y"], "reader", pads=[1] * 4))
    return make_model(nodes, weights, {"x": (1, 3, 12, 16)}, ["y"])


PATTERNS = (
    "shuffle",
    "neck",
    "split",
    "head",
    "uneven",
    "gate",
    "attention",
    "distances",
    "pyramid",
    "upsample",
)
SCHEMES = {target: QuantizeSettings(target=target) for target in PLACEMENTS}
SCHEMES["openvino, symmetric"] = QuantizeSettings(target="openvino", symmetric=True)
SCHEMES["openvino, integer sums"] = QuantizeSettings(target="openvino", integer_sums="pyramids")
SCHEMES["openvino, gates"] = QuantizeSettings(target="openvino", integer_sums="gates")
SCHEMES["openvino, spared"] = QuantizeSettings(target="openvino", spares_padded=True)
SCHEMES["openvino, attention"] = QuantizeSettings(target="openvino", integer_attention=True)
CASES = [
    (pattern, target)
    for pattern in PATTERNS
    for target in ("tensorrt", "openvino", "openvino, symmetric", "openvino, spared")
]
CASES += [(pattern, "openvino, integer sums") for pattern in ("pyramid", "blocks", "levels")]
CASES += [(pattern, "openvino, gates") for pattern in ("gate", "levels", "gated_levels")]
CASES += [("attention", "openvino, attention")]
CASES += [(pattern, "onnxruntime") for pattern in ("shuffle", "neck", "split", "head", "uneven")]


def sqnr_db(wanted, got):
    return 10 * np.log10(np.square(wanted).sum() / max(np.square(wanted - got).sum(), 1e-12))


@pytest.mark.parametrize("target", SCHEMES)
@pytest.mark.parametrize("tail", ["", "Relu", "MaxPool"])
def test_a_concat_is_computed_as_written(
    target, tail, schemes, make_model, samples, run_model, run_openvino
):
    model = concat_model(make_model, tail)
    quantized = quantize_model(model, samples, schemes[target]).model
    wanted = run_model(quantized, samples[0])["y"]
    assert sqnr_db(wanted, run_openvino(quantized, samples[0])["y"]) > 50


def test_without_the_guard_openvino_goes_wrong(
    schemes, make_model, samples, run_model, run_openvino_without_amx
):
    """The negative control; once it fails, OpenVINO is mended and the guard can go."""
    quantized = quantize_model(concat_model(make_model, ""), samples, schemes["tensorrt"]).model
    bare = remove_guards(quantized)
    assert [node.name for node in quantized.graph.node if node.name.endswith(GUARD_SUFFIX)]
    assert not [node.name for node in bare.graph.node if node.name.endswith(GUARD_SUFFIX)]
    wanted = run_model(quantized, samples[0])["y"]
    np.testing.assert_array_equal(run_model(bare, samples[0])["y"], wanted)
    assert sqnr_db(wanted, run_openvino_without_amx(bare, samples[0])["y"]) < 30


def tokens_model(make_model):
    """Two feature maps, flattened and joined as rows that a linear layer reads."""
    rng = np.random.default_rng(0)
    weights = {
        "wa": rng.standard_normal((8, 3, 3, 3)).astype(np.float32) * 0.3,
        "wb": rng.standard_normal((8, 3, 1, 1)).astype(np.float32) * 0.3,
        "wc": rng.standard_normal((8, 6)).astype(np.float32) * 0.3,
    }
    rows = {"shape": np.array([1, 8, -1])}
    nodes = []
    for name, pads in (("a", [1] * 4), ("b", [0] * 4)):
        nodes += [
            helper.make_node("Conv", ["x", f"w{name}"], [name], f"layer_{name}", pads=pads),
            helper.make_node("Sigmoid", [name], [f"{name}_gate"], f"gate_{name}"),
            helper.make_node("Mul", [name, f"{name}_gate"], [f"{name}_silu"], f"silu_{name}"),
            helper.make_node(
                "Reshape", [f"{name}_silu", "shape"], [f"{name}_flat"], f"flat_{name}"
            ),
            helper.make_node(
                "Transpose", [f"{name}_flat"], [f"{name}_rows"], f"rows_{name}", perm=[0, 2, 1]
            ),
        ]
    nodes += [
        helper.make_node("Concat", ["a_rows", "b_rows"], ["tokens"], "join", axis=1),
        helper.make_node("MatMul", ["tokens", "wc"], ["y"], "reader"),
    ]
    return make_model(nodes, weights | rows, {"x": (1, 3, 12, 16)}, ["y"])


@pytest.mark.parametrize("target", sorted(SCHEMES.keys() - {"onnxruntime"}))
def test_joined_tokens_are_computed_as_written(
    target, schemes, make_model, samples, run_model, run_openvino
):
    quantized = quantize_model(tokens_model(make_model), samples, schemes[target]).model
    wanted = run_model(quantized, samples[0])["y"]
    assert sqnr_db(wanted, run_openvino(quantized, samples[0])["y"]) > 40


def test_without_the_guard_openvino_does_not_compile_joined_tokens(
    schemes, make_model, samples, run_openvino
):
    """The negative control; once it fails, OpenVINO is mended and this guard can go."""
    quantized = quantize_model(tokens_model(make_model), samples, schemes["openvino"]).model
    with pytest.raises(RuntimeError, match="cannot be broadcasted"):
        run_openvino(remove_guards(quantized), samples[0])


@pytest.mark.parametrize("target", SCHEMES)
def test_a_residual_network_is_computed_as_written(
    target, schemes, residual_model, samples, run_model, run_openvino
):
    quantized = quantize_model(residual_model, samples, schemes[target]).model
    wanted, got = run_model(quantized, samples[0]), run_openvino(quantized, samples[0])
    for name, value in wanted.items():
        assert sqnr_db(value, got[name]) > 40


@pytest.mark.parametrize(("pattern", "target"), CASES)
def test_every_pattern_is_computed_as_written(
    pattern, target, schemes, make_pattern, samples, run_model, run_openvino
):
    """Values on the edge between two integers may fall either way, so 35 dB, not more.

    White noise is no picture to alter, so there are as many samples as it takes that none is.
    """
    model = make_pattern(pattern)
    many = samples[:2] * (FEW_SAMPLES // 2)
    quantized = quantize_model(model, many, schemes[target]).model
    (name,) = (item.name for item in model.graph.output)
    wanted = run_model(quantized, samples[0])[name]
    assert sqnr_db(wanted, run_openvino(quantized, samples[0])[name]) > 35
    assert sqnr_db(run_model(model, samples[0])[name], wanted) > 20


@pytest.mark.parametrize("scheme", ["openvino, symmetric", "openvino, spared"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_signed_and_unsigned_tensors_are_computed_as_written_without_amx(
    scheme, pattern, schemes, make_pattern, samples, run_model, run_openvino_without_amx
):
    """A file that was made where AMX likes no zero points is right on other processors too."""
    model = make_pattern(pattern)
    many = samples[:2] * (FEW_SAMPLES // 2)
    quantized = quantize_model(model, many, schemes[scheme]).model
    (name,) = (item.name for item in model.graph.output)
    wanted = run_model(quantized, samples[0])[name]
    assert sqnr_db(wanted, run_openvino_without_amx(quantized, samples[0])[name]) > 35


@pytest.mark.parametrize("pattern", ["shuffle", "neck"])
def test_without_their_guards_tied_int8_tensors_go_wrong(
    pattern, schemes, make_pattern, samples, run_model, run_openvino_without_amx
):
    quantized = quantize_model(make_pattern(pattern), samples[:2], schemes["tensorrt"]).model
    (name,) = (item.name for item in quantized.graph.output)
    wanted = run_model(quantized, samples[0])[name]
    bare = remove_guards(quantized)
    np.testing.assert_array_equal(run_model(bare, samples[0])[name], wanted)
    assert sqnr_db(wanted, run_openvino_without_amx(bare, samples[0])[name]) < 30


@pytest.mark.parametrize("target", ["openvino", "openvino, symmetric", "tensorrt"])
@pytest.mark.parametrize("pattern", ["shuffle", "neck", "split"])
def test_openvino_joins_integers(target, pattern, schemes, make_pattern, samples):
    """What ties are for: every Concat and shuffle moves bytes, not floats."""
    quantized = quantize_model(make_pattern(pattern), samples[:2], schemes[target])
    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(quantized.model.SerializeToString()),
        "CPU",
        {"INFERENCE_PRECISION_HINT": "f32"},
    )
    facts = [node.get_rt_info() for node in compiled.get_runtime_model().get_ordered_ops()]
    precisions = [
        item["runtimePrecision"].astype(str)
        for item in facts
        if item["layerType"].astype(str) in ("Concatenation", "Transpose", "Gather", "Split")
    ]
    assert precisions
    assert set(precisions) <= {"u8", "i8"}


@pytest.fixture(params=["a row", "an expanded row"])
def masked_attention(request, make_model):
    """Attention over 20 keys of which some are padding, with samples: (network, samples)."""
    row = "mask"
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"], "scores"),
        helper.make_node("Add", ["s", row], ["m"], "masked"),
        helper.make_node("Softmax", ["m"], ["p"], "softmax"),
        helper.make_node("MatMul", ["p", "v"], ["a"], "mixed"),
        helper.make_node("MatMul", ["a", "w"], ["y"], "last"),
    ]
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 8)).astype(np.float32)}
    if request.param == "an expanded row":
        weights["heads"] = np.array([1, 4, 1, 1])
        nodes[1].input[1] = "rows"
        nodes.insert(0, helper.make_node("Expand", [row, "heads"], ["rows"], "expand"))
    shapes = {"q": (1, 4, 20, 8), "k": (1, 4, 8, 20), row: (1, 1, 1, 20), "v": (1, 4, 20, 8)}
    many = [
        {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(FEW_SAMPLES)
    ]
    return make_model(nodes, weights, shapes, ["y"]), many


@pytest.mark.parametrize("scheme", ["tensorrt", "openvino, attention"])
def test_masked_attention_is_computed_as_written(
    scheme, schemes, masked_attention, run_model, run_openvino
):
    model, many = masked_attention
    quantized = quantize_model(model, many, schemes[scheme]).model
    is_float = scheme == "tensorrt" and schemes[scheme].is_for_16_bits
    kinds = [node.op_type for node in quantized.graph.node]
    assert kinds.count("QuantizeLinear") == (1 if is_float else 5)
    wanted = run_model(quantized, many[0])["y"]
    assert sqnr_db(wanted, run_openvino(quantized, many[0])["y"]) > 50


@pytest.mark.usefixtures("amx")
def test_with_the_mask_second_openvino_goes_wrong(
    schemes, masked_attention, run_model, run_openvino
):
    """The negative control; once it fails, OpenVINO is mended and masks can stay where they are."""
    model, many = masked_attention
    quantized = quantize_model(model, many, schemes["tensorrt"]).model
    put_first(next(node for node in quantized.graph.node if node.name == "masked"))
    wanted = run_model(quantized, many[0])["y"]
    assert not sqnr_db(wanted, run_openvino(quantized, many[0])["y"]) > 30


@pytest.mark.parametrize("dtype", [np.float64, np.uint16])
@pytest.mark.parametrize("target", SCHEMES)
def test_an_input_of_a_type_without_a_quantizer_is_read_through_a_guard(
    target, dtype, schemes, residual_model, samples, run_model, run_openvino
):
    """Without the guard OpenVINO does not compile it: the negative control."""
    (name,) = samples[0]
    model = read_as(dtype, residual_model)
    given = [{name: (10 * np.abs(sample[name])).astype(dtype)} for sample in samples]
    quantized = quantize_model(model, given, schemes[target]).model
    wanted, got = run_model(quantized, given[0]), run_openvino(quantized, given[0])
    for output, value in wanted.items():
        assert sqnr_db(value, got[output]) > 40
    with pytest.raises(RuntimeError, match="does not support"):
        run_openvino(remove_guards(quantized), given[0])


def read_as(dtype, model):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    source = copy.graph.input[0]
    for node in copy.graph.node:
        node.input[:] = [f"{name}_32" if name == source.name else name for name in node.input]
    cast = helper.make_node("Cast", [source.name], [f"{source.name}_32"], "cast", to=1)
    copy.graph.node.insert(0, cast)
    source.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return copy


@pytest.fixture
def make_channels_last(make_model):
    """Returns a network that turns pictures with channels last, and joins two branches of them."""
    rng = np.random.default_rng(0)
    shapes = {"a": (32, 3, 3, 3), "b": (11, 32, 1, 1), "c": (11, 32, 1, 1)}
    weights = {
        name: (rng.standard_normal(shape) * 0.3).astype(np.float32)
        for name, shape in shapes.items()
    }
    halves = {"kernel_shape": [1, 1], "strides": [2, 2]}
    nodes = [
        helper.make_node("Sub", ["x", "mean"], ["s"], "centre"),
        helper.make_node("Transpose", ["s"], ["t"], "turn", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "a"], ["h"], "stem", strides=[2, 2]),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("AveragePool", ["r"], ["p"], "left_half", **halves),
        helper.make_node("AveragePool", ["r"], ["q"], "right_half", **halves),
        helper.make_node("Conv", ["p", "b"], ["u"], "left"),
        helper.make_node("Conv", ["q", "c"], ["v"], "right"),
        helper.make_node("Concat", ["u", "v"], ["y"], "join", axis=1),
    ]
    weights["mean"] = np.float32(0.5)
    return make_model(nodes, weights, {"x": (1, 33, 41, 3)}, ["y"])


@pytest.mark.parametrize("symmetric", [False, True])
def test_openvino_reads_turned_pictures_as_the_file_says(
    symmetric, exact_weights, make_channels_last, run_model, run_openvino
):
    """Signed integers that a Transpose turns, with a Concat behind, were read as unsigned."""
    rng = np.random.default_rng(1)
    samples = [{"x": rng.uniform(size=(1, 33, 41, 3)).astype(np.float32)} for _ in range(3)]
    settings = QuantizeSettings(target="openvino", weights=exact_weights, symmetric=symmetric)
    model = quantize_model(make_channels_last, samples, settings).model
    said, computed = (run(model, samples[0])["y"] for run in (run_model, run_openvino))
    assert np.square(said - computed).sum() < 1e-4 * np.square(said).sum()
