"""What lint says about kernels, held against the kernels that TensorRT-RTX makes."""

from functools import partial

import numpy as np
import onnx
import pytest

from compress.quantize.api import quantize_model
from compress.quantize.placement import PLACEMENTS, TensorRT, last_layers
from compress.quantize.settings import QuantizeSettings
from export.lint import lint_model


def findings(model, rule):
    report = lint_model(model, target="tensorrt-rtx")
    return [finding for finding in report.findings if finding.rule == rule]


def layer_of(built, node):
    """Returns the kernel that a node became, the first where it became several."""
    return next(layer for layer in built["layers"] if node in layer["nodes"])


def kernels(built):
    return len(built["layers"])


def list_kernels(built):
    """Returns the kind and the inputs of each kernel."""
    assert built["is_built"], built
    return [(layer["kind"], layer["inputs"]) for layer in built["layers"]]


@pytest.fixture
def build(build_with_rtx):
    def build(drawing, *outputs):
        model = drawing.model(*outputs)
        built = build_with_rtx(model)
        assert built["is_built"], built
        return model, built

    return build


def test_a_half_quantized_layer_computes_in_float(draw, build):
    whole, half = draw(), draw()
    _, good = build(whole, whole.conv("x", "conv"))
    model, bad = build(half, half.conv("x", "conv", pair=False))
    assert findings(model, "half-quantized")
    assert "Int8" in layer_of(good, "conv")["inputs"]
    assert "Int8" not in layer_of(bad, "conv")["inputs"]
    assert kernels(bad) >= kernels(good)


def test_scales_along_the_wrong_axis_compute_in_float(draw, build):
    d = draw()
    model, built = build(d, d.conv("x", "conv", weight=d.weight((32, 32, 3, 3), axis=1)))
    assert findings(model, "scale-axis")
    assert "Int8" not in layer_of(built, "conv")["inputs"]


def test_quantizing_a_float_layer_is_a_kernel_of_its_own(draw, build):
    d = draw()
    plain = d.op("Conv", "x", d.floats(32, 32, 1, 1), name="plain")
    source = d.pair(plain)
    quantizer = d.nodes[-2].name
    model, built = build(d, d.conv(source, "conv", pair=False))
    (finding,) = findings(model, "reformat")
    assert quantizer in finding.place
    assert finding.severity == "warning"
    assert finding.traffic_bytes == 32 * 16 * 16 * 3
    assert layer_of(built, quantizer)["nodes"] == [quantizer]


@pytest.mark.parametrize("kind", ["Softmax", "Resize", "HardSwish", "Add", "MaxPool", "Slice"])
def test_what_is_not_called_a_reformat_is_joined_with_the_pair(kind, draw, build):
    operands = {
        "Softmax": ({}, ()),
        "Resize": ({}, ("", np.asarray([1, 1, 2, 2], np.float32))),
        "HardSwish": ({}, ()),
        "Add": ({}, (np.ones((32, 1, 1), np.float32),)),
        "MaxPool": ({"kernel_shape": [2, 2]}, ()),
        "Slice": ({}, (np.asarray([0, 0]), np.asarray([4, 4]), np.asarray([2, 3]))),
    }
    attributes, constants = operands[kind]
    d = draw()
    names = [item if isinstance(item, str) else d.constant(item) for item in constants]
    active = d.op("Relu", d.conv("x", "first"), name="act")
    between = d.op(kind, active, *names, name="between", **attributes)
    source = d.pair(between)
    quantizer = d.nodes[-2].name
    model, built = build(d, d.conv(source, "second", pair=False))
    assert not [item for item in findings(model, "reformat") if item.severity == "warning"]
    assert layer_of(built, quantizer)["nodes"] != [quantizer]


def test_a_shortcut_that_is_read_in_float_is_written_twice(draw, build):
    results = {}
    for kind in ("shared", "float"):
        d = draw()
        trunk = d.op("Relu", d.conv("x", "stem"), name="trunk")
        shared = d.pair(trunk)
        quantizer = d.nodes[-2].name
        branch = d.conv(shared, "branch", pair=False)
        total = d.op("Add", branch, shared if kind == "shared" else trunk, name="sum")
        model, built = build(d, d.conv(total, "after"))
        written = [layer["outputs"] for layer in built["layers"] if quantizer in layer["nodes"]]
        results[kind] = (bool(findings(model, "residual-add")), sorted(written[0]))
    assert results["shared"] == (False, ["Int8"])
    assert results["float"] == (True, ["Float", "Int8"])


@pytest.mark.parametrize("reader", ["BatchNormalization", "HardSwish"])
def test_a_shortcut_that_only_the_sum_reads_in_integers_saves_no_kernel(reader, draw, build):
    """A trunk whose blocks begin with a normalization: the sum only rounds, with a pair or without.

    `compress quantize` leaves it in float for that.
    """
    counts = {}
    for has_pair in (True, False):
        d = draw()
        trunk = d.conv("x", "stem")
        for block in range(2):
            ones = [d.constant(np.full(32, 1.5, np.float32)) for _ in range(4)]
            constants = ones if reader == "BatchNormalization" else []
            normal = d.op(reader, trunk, *constants, name=f"normal{block}")
            branch = d.conv(normal, f"branch{block}")
            trunk = d.op("Add", d.pair(trunk) if has_pair else trunk, branch, name=f"sum{block}")
        model, built = build(d, d.conv(trunk, "last"))
        assert not findings(model, "residual-add")
        kernel = layer_of(built, "sum0")
        counts[has_pair] = (kernels(built), kernel["inputs"], sorted(kernel["outputs"]))
    assert counts[True] == counts[False]
    assert counts[True][1] == ["Float", "Float"]


def test_two_scales_of_one_tensor_write_it_twice(draw, build):
    d = draw()
    active = d.op("Relu", d.conv("x", "first"), name="act")
    outputs = [d.conv(d.pair(active, scale), pair=False) for scale in (0.05, 0.1)]
    model, built = build(d, *outputs)
    assert findings(model, "double-quantization")
    assert layer_of(built, "act")["outputs"] == ["Int8", "Int8"]


@pytest.mark.parametrize("is_per_channel", [True, False])
def test_scales_per_channel_leave_the_activation_outside(is_per_channel, draw, build):
    d = draw()
    weight = d.weight((32, 32, 3, 3), is_per_channel=is_per_channel)
    active = d.op("Relu", d.conv("x", "first", weight=weight), name="act")
    model, built = build(d, d.conv(active, "second"))
    first = layer_of(built, "first")
    assert ("act" in first["nodes"]) != is_per_channel
    places = [item.what for item in findings(model, "rtx-epilogue")]
    assert places[0].startswith("2 " if is_per_channel else "1 ")


def test_a_pair_before_the_activation_parts_it_from_its_layer(draw, build):
    parted = {}
    for is_parted in (True, False):
        d = draw()
        weight = d.weight((32, 32, 3, 3), is_per_channel=False)
        result = d.conv("x", "first", weight=weight)
        active = d.op("Relu", d.pair(result) if is_parted else result, name="act")
        model, built = build(d, d.conv(active, "second"))
        assert bool(findings(model, "activation-order")) == is_parted
        parted[is_parted] = "act" not in layer_of(built, "first")["nodes"]
    assert parted == {True: True, False: False}


def test_unsigned_integers_are_built_as_signed_ones(draw, build):
    digests = {}
    for kind in (np.int8, np.uint8):
        d = draw()
        source = d.pair("x", zero_point=kind(0))
        model, built = build(d, d.conv(source, "conv", pair=False))
        digests[kind] = built["digest"]
        assert bool(findings(model, "quantized-type")) == (kind is np.uint8)
        assert lint_model(model, target="tensorrt-rtx").is_passed == (kind is np.int8)
    assert digests[np.int8] == digests[np.uint8]


def test_the_model_is_not_changed(draw):
    d = draw()
    model = d.model(d.conv("x", "conv"))
    before = model.SerializeToString()
    lint_model(model)
    assert model.SerializeToString() == before
    assert isinstance(model, onnx.ModelProto)


@pytest.mark.parametrize("activation", ["Relu", "HardSwish", "SiLU", "Gelu"])
def test_centered_ranges_are_no_kernels_of_their_own(activation, draw, build_with_rtx):
    d = draw()
    value = d.op("Conv", "x", d.floats(32, 32, 3, 3), d.floats(32), pads=[1, 1, 1, 1])
    gate = d.op("Sigmoid", value) if activation == "SiLU" else None
    active = d.op("Mul", value, gate) if gate else d.op(activation, value)
    model = d.model(d.op("Conv", active, d.floats(32, 32, 1, 1), d.floats(32)), opset=20)
    samples = [{"x": d.rng.normal(0, 1, (1, 32, 16, 16)).astype(np.float32)} for _ in range(4)]
    kernels = []
    for centering in (True, False):
        result = quantize_model(model, samples, QuantizeSettings(centering=centering))
        assert centering == any(line.startswith("centered") for line in result.simplified)
        kernels.append(list_kernels(build_with_rtx(result.model)))
    assert kernels[0] == kernels[1]


@pytest.mark.parametrize("activation", ["Clip", "HardSwish", "SiLU", "Gelu"])
@pytest.mark.parametrize("is_resized", [False, True])
def test_products_behind_activations_are_no_kernels_of_their_own(
    activation, is_resized, draw, build_with_rtx
):
    d = draw()
    loudness = np.geomspace(0.1, 6, 32).astype(np.float32)
    weight = d.rng.normal(0, 0.1, (32, 32, 3, 3)) * loudness.reshape(-1, 1, 1, 1)
    weight = d.constant(weight.astype(np.float32))
    value = d.op("Conv", "x", weight, d.floats(32), pads=[1, 1, 1, 1])
    gate = d.op("Sigmoid", value) if activation == "SiLU" else None
    limits = [d.constant(np.float32(limit)) for limit in (0, 6) if activation == "Clip"]
    active = d.op("Mul", value, gate) if gate else d.op(activation, value, *limits)
    if is_resized:
        active = d.op("Resize", active, "", d.constant(np.float32([1, 1, 2, 2])))
    reader = d.rng.normal(0, 1, (32, 32, 3, 3)) / loudness.reshape(1, -1, 1, 1)
    reader = d.constant(reader.astype(np.float32))
    model = d.model(d.op("Conv", active, reader, d.floats(32), pads=[1, 1, 1, 1]), opset=20)
    samples = [{"x": d.rng.normal(0, 1, (1, 32, 16, 16)).astype(np.float32)} for _ in range(16)]
    kernels = []
    for equalization in (True, False):
        result = quantize_model(model, samples, QuantizeSettings(equalization=equalization))
        assert equalization == any(line.startswith("scaled") for line in result.simplified)
        kernels.append(list_kernels(build_with_rtx(result.model)))
    assert kernels[0] == kernels[1]


def test_small_layers_of_one_vector_need_the_fewest_kernels_in_float(
    draw, build_with_rtx, monkeypatch
):
    d = draw()
    active = d.op("Relu", d.op("Conv", "x", d.floats(32, 32, 3, 3), pads=[1] * 4))
    squeezed = d.op("Relu", d.op("Conv", d.op("GlobalAveragePool", active), d.floats(8, 32, 1, 1)))
    gate = d.op("Sigmoid", d.op("Conv", squeezed, d.floats(32, 8, 1, 1)))
    gated = d.op("Mul", active, gate)
    mean = d.op("Flatten", d.op("GlobalAveragePool", gated))
    head = d.op("Gemm", d.op("Relu", d.op("Gemm", mean, d.floats(32, 16))), d.floats(16, 5))
    model = d.model(d.op("Conv", gated, d.floats(32, 32, 3, 3)), head)
    samples = [{"x": d.rng.normal(0, 1, (1, 32, 16, 16)).astype(np.float32)} for _ in range(4)]
    built = {}
    for vectors in ("integers", "weights", "float"):
        monkeypatch.setitem(PLACEMENTS, "tensorrt", partial(TensorRT, vectors=vectors))
        built[vectors] = build_with_rtx(quantize_model(model, samples).model)
        assert built[vectors]["is_built"], built[vectors]
    assert kernels(built["float"]) < kernels(built["weights"])
    assert kernels(built["float"]) < kernels(built["integers"])


def test_last_layers_need_no_more_kernels_in_float(draw, build_with_rtx, monkeypatch):
    d = draw()
    active = d.op("Relu", d.op("Conv", "x", d.floats(32, 32, 3, 3), pads=[1] * 4))
    hidden = d.op("Relu", d.op("Conv", active, d.floats(32, 32, 1, 1), strides=[4, 4]))
    outputs = [d.op("Conv", hidden, d.floats(count, 32, 1, 1)) for count in (2, 1)]
    model = d.model(*outputs)
    samples = [{"x": d.rng.normal(0, 1, (1, 32, 16, 16)).astype(np.float32)} for _ in range(4)]
    counts = {}
    for is_kept in (True, False):
        monkeypatch.setitem(
            PLACEMENTS, "tensorrt", partial(TensorRT, most_last_traffic=0.5 if is_kept else 0.0)
        )
        result = quantize_model(model, samples)
        assert is_kept == any(item.reason == last_layers.REASON for item in result.declined)
        counts[is_kept] = len(list_kernels(build_with_rtx(result.model)))
    assert counts[True] <= counts[False]
