from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from artifacts.decided_outputs import find_choices
from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from artifacts.removed_pairs import remove_qdq
from export.fp16_check import measure_ranges, run_model, simulate_fp16
from export.fp16_plan import FP16_MAX, MAX_SCALE_ERROR
from export.fp16_scales import _requantize, raise_scales
from export.parity import measure_sqnr_db
from export.precision import apply_fp16, has_qdq
from tests.chosen_rows import choose_rows

SHAPE = (1, 3, 16, 24)


def types_of(model):
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {tensor.name: tensor.data_type for tensor in model.graph.initializer}


def node_named(model, name):
    return next(node for node in model.graph.node if node.name == name)


def make_chain(nodes, constants, output="y"):
    """Returns image → nodes → y with float constants by name."""
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def test_inputs_and_outputs_stay_fp32_and_everything_between_is_typed(float_model, sample):
    result = apply_fp16(float_model, [sample])
    types = types_of(result.model)
    for name in ("image", "logits", "distances"):
        assert types[name] == TensorProto.FLOAT
    for name in ("conv1", "conv2", "add", "conv3"):
        node = node_named(result.model, name)
        assert {types[value] for value in (*node.input, *node.output)} == {TensorProto.FLOAT16}
    assert result.counts == {"int8": 0, "fp16": 5, "fp32": 1}
    assert [item.node for item in result.kept] == ["exp"]
    assert result.int8_sqnr_db is None
    assert result.is_on_samples
    onnx.checker.check_model(result.model, full_check=True)


def test_constants_are_stored_in_fp16_without_a_cast(float_model, sample):
    model = apply_fp16(float_model, [sample]).model
    stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert set(stored.values()) == {TensorProto.FLOAT16}
    sources = {node.input[0] for node in model.graph.node if node.op_type == "Cast"}
    assert not sources & set(stored)


def test_onnxruntime_runs_the_typed_network_near_fp32(float_model, sample):
    typed = apply_fp16(float_model, [sample]).model
    (wanted,), (got,) = run_model(float_model, [sample]), run_model(typed, [sample])
    for name, values in wanted.items():
        assert got[name].dtype == np.float32
        assert measure_sqnr_db(values, got[name]) > 50


def test_qdq_are_not_separated_from_what_they_quantize(int8_model, sample):
    result = apply_fp16(int8_model, [sample])
    model, types = result.model, types_of(result.model)
    producers = {name: node for node in model.graph.node for name in node.output}
    consumers = {name: node for node in model.graph.node for name in node.input}
    assert result.counts["int8"] == 3
    for node in model.graph.node:
        if node.op_type == "Conv":
            assert {producers[name].op_type for name in node.input[:2]} == {"DequantizeLinear"}
            assert {types[name] for name in node.input} == {TensorProto.FLOAT16}
        if node.op_type == "DequantizeLinear":
            assert consumers[node.output[0]].op_type == "Conv"
            assert types[node.input[1]] == TensorProto.FLOAT16
        if node.op_type == "QuantizeLinear":
            assert types[node.input[0]] == types[node.input[1]]
    first = next(node for node in model.graph.node if node.op_type == "QuantizeLinear")
    assert first.input[0] == "image"
    weights = {name: numpy_helper.to_array(t) for t in model.graph.initializer for name in [t.name]}
    assert weights["w1_int8"].dtype == np.int8


def test_what_int8_costs_is_told_apart_from_what_fp16_costs(int8_model, sample):
    result = apply_fp16(int8_model, [sample])
    for name, db in result.sqnr_db.items():
        assert db > 45
        assert 15 < result.int8_sqnr_db[name] < db


def test_an_old_opset_is_raised_for_fp16_scales(make_int8_model, sample):
    result = apply_fp16(make_int8_model(17), [sample])
    assert next(item.version for item in result.model.opset_import if not item.domain) >= 19
    assert result.counts == apply_fp16(make_int8_model(19), [sample]).counts


def test_where_the_opset_cannot_be_raised_quantized_operators_give_fp32(
    make_int8_model, sample, monkeypatch
):
    monkeypatch.setattr("export.precision.upgrade_opset", lambda model, path, target_opset: model)
    result = apply_fp16(make_int8_model(17), [sample])
    reasons = {item.node: item.reason for item in result.kept}
    assert {"conv1", "conv2", "conv3"} <= set(reasons)
    assert "FP32 scales only" in reasons["conv1"]
    types = types_of(result.model)
    for node in result.model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            assert types[node.input[1]] == TensorProto.FLOAT
    assert {types[name] for name in node_named(result.model, "relu1").input} == {
        TensorProto.FLOAT16
    }


@pytest.mark.parametrize(
    ("constants", "nodes", "kept", "reason"),
    [
        (
            {"w": 2 * FP16_MAX},
            [("Mul", ["image", "w"], "big"), ("Sigmoid", ["big"], "y")],
            "Mul",
            "beyond FP16's 65504",
        ),
        (
            {"eps": 1e-12},
            [("Abs", ["image"], "a"), ("Add", ["a", "eps"], "b"), ("Sqrt", ["b"], "y")],
            "Add",
            "rounds to 0",
        ),
        (
            {"w": 30000.0, "v": 3e-5},
            [("Mul", ["image", "w"], "p"), ("Mul", ["p", "v"], "y")],
            "Mul",
            "on the samples",
        ),
        (
            {"w": 2e-5, "v": 0.02, "u": 1e6},
            [("Mul", ["image", "w"], "p"), ("Mul", ["p", "v"], "q"), ("Mul", ["q", "u"], "y")],
            "Mul",
            "reaches no more than",
        ),
    ],
)
def test_what_leaves_the_range_stays_fp32_and_says_so(constants, nodes, kept, reason, sample):
    made = [
        helper.make_node(op, inputs, [output], f"{op}_{index}")
        for index, (op, inputs, output) in enumerate(nodes)
    ]
    result = apply_fp16(make_chain(made, constants), [sample])
    assert (kept, True) in {(item.operator, reason in item.reason) for item in result.kept}
    assert min(result.sqnr_db.values()) > 50


def test_what_only_leaves_the_range_where_pairs_do_not_clip_it_stays_fp32(sample):
    constants = {"scale": 0.004, "gain": 11.0, "stride": 32.0}
    model = make_chain(
        [
            helper.make_node("QuantizeLinear", ["image", "scale", "zero"], ["q"], name="q"),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["clipped"], name="dq"),
            helper.make_node("Mul", ["clipped", "gain"], ["sides"], name="gain"),
            helper.make_node("Exp", ["sides"], ["grown"], name="exp"),
            helper.make_node("Mul", ["grown", "stride"], ["y"], name="stride"),
        ],
        constants,
    )
    model.graph.initializer.append(numpy_helper.from_array(np.int8(0), "zero"))
    model = onnx.shape_inference.infer_shapes(model)
    bright = {"image": np.full(SHAPE, 0.4, np.float32)}
    assert [item.node for item in apply_fp16(model, [bright]).kept] == ["exp"]
    brighter = {"image": np.full(SHAPE, 0.9, np.float32)}
    assert {item.node for item in apply_fp16(model, [brighter]).kept} == {"exp", "stride"}


def test_an_overflow_that_the_plan_missed_is_caught_by_the_simulation(sample):
    nodes = [
        helper.make_node("Mul", ["image", "w"], ["p"], "first"),
        helper.make_node("Mul", ["p", "w"], ["q"], "second"),
        helper.make_node("Mul", ["q", "v"], ["y"], "third"),
    ]
    model = make_chain(nodes, {"w": 1000.0, "v": 1e-6})
    quiet = {"image": sample["image"] * 1e-3}
    typed = apply_fp16(model, [quiet]).model
    (loud,) = run_model(simulate_fp16(typed), [sample])
    (exact,) = run_model(model, [sample])
    assert np.isfinite(exact["y"]).all()
    assert not np.isfinite(loud["y"]).all()


@pytest.mark.parametrize("has_pictures", [False, True])
def test_a_refusal_after_random_input_asks_for_pictures(has_pictures, sample):
    nodes = [
        helper.make_node("Add", ["image", "w"], ["p"], "far"),
        helper.make_node("Sub", ["p", "w"], ["y"], "back"),
    ]
    model = make_chain(nodes, {"w": 1000.0})
    with pytest.raises(InputError, match="FP16 brings output 'y'") as refused:
        apply_fp16(model, [sample] if has_pictures else [])
    assert "--keep-fp32" in str(refused.value)
    assert ("--data" in str(refused.value)) != has_pictures


def test_nodes_can_be_kept_by_name_and_unknown_names_are_refused(float_model, sample):
    result = apply_fp16(float_model, [sample], keep_fp32=["conv2"])
    assert ("conv2", "asked for") in {(item.node, item.reason) for item in result.kept}
    types = types_of(result.model)
    node = node_named(result.model, "conv2")
    assert {types[value] for value in (*node.input, *node.output)} == {TensorProto.FLOAT}
    with pytest.raises(InputError, match="no node 'conv9'"):
        apply_fp16(float_model, [sample], keep_fp32=["conv9"])


def change_scale(model, name, change):
    for tensor in model.graph.initializer:
        if tensor.name == name:
            values = change(numpy_helper.to_array(tensor).copy()).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, name))


def test_an_activation_scale_that_fp16_cannot_hold_keeps_its_operator_in_fp32(int8_model, sample):
    change_scale(int8_model, "r_scale", lambda scale: scale * 0 + 1e-9)
    result = apply_fp16(int8_model, [sample])
    assert [item.node for item in result.kept if "scale" in item.reason] == ["conv2"]
    types = types_of(result.model)
    node = node_named(result.model, "conv2")
    assert {types[name] for name in node.input} == {TensorProto.FLOAT}


def test_tiny_weight_scales_are_refitted_and_cost_nothing(int8_model, sample):
    def shrink(scale):
        scale[3], scale[5] = 1e-9, 3e-6
        return scale

    change_scale(int8_model, "w2_scale", shrink)
    result = apply_fp16(int8_model, [sample])
    assert result.refitted == ("w2_int8",)
    assert [item.node for item in result.kept] == ["exp"]
    assert min(result.sqnr_db.values()) > 45
    scales = [
        numpy_helper.to_array(tensor)
        for tensor in result.model.graph.initializer
        if "w2_scale" in tensor.name
    ]
    assert [scale.dtype for scale in scales] == [np.float16]
    assert (scales[0] > 0).all()


@given(
    st.lists(st.floats(2.0**-40, 2.0**13, width=32), min_size=1, max_size=8),
    st.integers(-127, 127),
)
def test_refitted_weights_are_off_by_half_a_raised_scale_at_most(scales, integer):
    old = np.array(scales, np.float32)
    new = raise_scales(old)
    assert (new >= old).all()
    assert (new <= np.maximum(2 * old, np.float32(2.0**-24))).all()
    is_small = old < 2.0**-14
    np.testing.assert_array_equal(new[~is_small], old[~is_small])
    halves = new[is_small].astype(np.float16).astype(np.float64)
    assert (np.abs(halves - new[is_small]) <= MAX_SCALE_ERROR * new[is_small]).all()
    assert (halves > 0).all()
    weights = _requantize(np.full(len(old), integer, np.int8), old, new, 0)
    error = np.abs(weights * new.astype(np.float64) - integer * old.astype(np.float64))
    assert (error <= new * 0.5 * (1 + 1e-6)).all()


def make_branches(nodes, result):
    """Returns the two branches of an If, each of one node."""
    value = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
    return {
        f"{kind}_branch": helper.make_graph([node], kind, [], [value])
        for kind, node in zip(("then", "else"), nodes, strict=True)
    }


def test_a_dequantized_tensor_that_a_subgraph_reads_stays_fp32(sample):
    nodes = [
        helper.make_node("QuantizeLinear", ["image", "scale", "zero"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["a"], "dq"),
        helper.make_node("ReduceMean", ["a"], ["m"], "mean", keepdims=0),
        helper.make_node("Greater", ["m", "scale"], ["flag"], "flag"),
        helper.make_node(
            "If",
            ["flag"],
            ["i"],
            "if",
            **make_branches(
                [
                    helper.make_node("Add", ["a", "scale"], ["part"]),
                    helper.make_node("Sub", ["a", "scale"], ["part"]),
                ],
                "part",
            ),
        ),
        helper.make_node("Mul", ["i", "a"], ["y"], "product"),
    ]
    model = make_chain(nodes, {"scale": 0.02})
    model.graph.initializer.append(numpy_helper.from_array(np.int8(0), "zero"))
    model = onnx.shape_inference.infer_shapes(model)
    result = apply_fp16(model, [sample])
    assert types_of(result.model)["a"] == TensorProto.FLOAT
    (wanted,), (got,) = run_model(model, [sample]), run_model(result.model, [sample])
    assert measure_sqnr_db(wanted["y"], got["y"]) > 40


def test_names_that_a_network_has_are_not_given_again(sample):
    nodes = [
        helper.make_node("Relu", ["image"], ["a"], "image_fp16_cast"),
        helper.make_node("Gather", ["a", "image_fp16"], ["b"], "y_cast", axis=1),
        helper.make_node("Exp", ["b"], ["b_fp32"], "exp"),
        helper.make_node("Relu", ["b_fp32"], ["y_fp16"], "last"),
        helper.make_node("Neg", ["y_fp16"], ["y"], "b_fp32_cast"),
    ]
    model = make_chain(nodes, {})
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 0]), "image_fp16"))
    model = onnx.shape_inference.infer_shapes(model)
    typed = apply_fp16(model, [sample]).model
    names = [node.name for node in typed.graph.node]
    assert len(set(names)) == len(names)
    (wanted,), (got,) = run_model(model, [sample]), run_model(typed, [sample])
    assert measure_sqnr_db(wanted["y"], got["y"]) > 40


def test_an_identity_computes_in_the_precision_of_its_neighbours(sample):
    nodes = [
        helper.make_node("Relu", ["image"], ["a"], "relu"),
        helper.make_node("Identity", ["a"], ["b"], "identity"),
        helper.make_node("Neg", ["b"], ["y"], "neg"),
    ]
    result = apply_fp16(make_chain(nodes, {}), [sample])
    assert types_of(result.model)["b"] == TensorProto.FLOAT16
    assert result.counts == {"int8": 0, "fp16": 3, "fp32": 0}


def test_an_input_that_is_a_number_gets_a_random_one():
    model = make_chain([helper.make_node("Mul", ["image", "gain"], ["y"], "mul")], {})
    model.graph.input.append(helper.make_tensor_value_info("gain", TensorProto.FLOAT, []))
    model = onnx.shape_inference.infer_shapes(model)
    assert apply_fp16(model).sqnr_db["y"] > 40


def test_a_subgraph_and_an_argmax_keep_working(sample):
    branch = [
        helper.make_graph(
            [helper.make_node(op, ["a"], [f"{op}_out"])],
            op,
            [],
            [helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, None)],
        )
        for op in ("Abs", "Neg")
    ]
    nodes = [
        helper.make_node("Relu", ["image"], ["a"], "relu"),
        helper.make_node("ReduceMean", ["a"], ["m"], "mean", keepdims=0),
        helper.make_node("Cast", ["m"], ["flag"], "flag", to=TensorProto.BOOL),
        helper.make_node("If", ["flag"], ["i"], "if", then_branch=branch[0], else_branch=branch[1]),
        helper.make_node("ArgMax", ["i"], ["k"], "argmax", axis=1),
        helper.make_node("Cast", ["k"], ["f"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Add", ["f", "i"], ["y"], "add"),
    ]
    model = make_chain(nodes, {})
    result = apply_fp16(model, [sample])
    assert "a subgraph reads its output" in {item.reason for item in result.kept}
    (wanted,), (got,) = run_model(model, [sample]), run_model(result.model, [sample])
    assert measure_sqnr_db(wanted["y"], got["y"]) > 40


def test_removing_qdq_gives_the_float_network_with_rounded_weights(float_model, int8_model, sample):
    bare = remove_qdq(int8_model)
    assert "QuantizeLinear" not in {node.op_type for node in bare.graph.node}
    assert has_qdq(int8_model)
    assert not has_qdq(float_model)
    (wanted,), (got,) = run_model(float_model, [sample]), run_model(bare, [sample])
    assert 30 < measure_sqnr_db(wanted["logits"], got["logits"]) < 70


@pytest.mark.real
@pytest.mark.parametrize("name", ["fastestdet/FastestDet.onnx", "ultraface/version-RFB-320.onnx"])
def test_real_networks_become_fp16(name, request):
    path: Path = request.config.rootpath.parent / "shared" / "real" / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    result = apply_fp16(load_onnx(path))
    assert result.counts["fp16"] > 20 * max(result.counts["fp32"], 1)
    assert min(result.sqnr_db.values()) > 30
    assert not result.is_on_samples


def test_a_typed_network_stays_as_it_is(int8_model, sample):
    once = apply_fp16(int8_model, [sample])
    twice = apply_fp16(once.model, [sample])
    assert twice.counts == once.counts
    operators = [[node.op_type for node in result.model.graph.node] for result in (once, twice)]
    assert operators[0] == operators[1]


def test_ranges_do_not_depend_on_the_grouping(float_model, sample, monkeypatch):
    loud = {"image": 3 * sample["image"]}
    together = measure_ranges(float_model, [sample, loud])
    assert together["r"] <= together["a"]
    assert together["logits"] >= measure_ranges(float_model, [sample])["logits"]
    monkeypatch.setattr("export.fp16_check.GROUP_BYTES", 1)
    assert measure_ranges(float_model, [sample, loud]) == together
    assert measure_ranges(float_model, []) == {}


@pytest.fixture
def queries_model():
    """Twenty of many rows are chosen by scores that FP16 cannot tell apart, and a layer goes on."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((8, 3, 3, 3)),
        "w_score": rng.standard_normal((1, 8, 1, 1)) / 500,
        "much": [[[[40.0]]]],
        "w_out": rng.standard_normal((8, 6)),
    }
    choosing, shapes = choose_rows(20)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["map"], "trunk", pads=[1] * 4),
        helper.make_node("Conv", ["map", "w_score"], ["small"], "score"),
        helper.make_node("Add", ["small", "much"], ["scores"], "scores"),
        *choosing,
        helper.make_node("MatMul", ["queries", "w_out"], ["y"], "decode"),
    ]
    model = make_chain(nodes, constants)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(value), name) for name, value in shapes.items()
    )
    return onnx.shape_inference.infer_shapes(model)


def test_what_is_computed_of_chosen_places_is_measured_at_the_same_places(
    queries_model, sample, monkeypatch
):
    assert find_choices(queries_model) == ("places",)
    assert apply_fp16(queries_model, [sample]).sqnr_db["y"] > 45
    monkeypatch.setattr("export.precision.find_choices", lambda model: ())
    with pytest.raises(InputError, match="output 'y'"):
        apply_fp16(queries_model, [sample])


def test_a_cast_of_fp32_to_fp32_gives_what_is_read(int8_model, sample):
    """Networks of mixed precision have such Casts; a quantizer in FP16 may read one."""
    model = onnx.ModelProto()
    model.CopyFrom(int8_model)
    place, quantize = next(
        (place, node)
        for place, node in enumerate(model.graph.node)
        if node.op_type == "QuantizeLinear" and node.input[0] != "image"
    )
    source, quantize.input[0] = quantize.input[0], "again"
    cast = helper.make_node("Cast", [source], ["again"], "again_cast", to=TensorProto.FLOAT)
    model.graph.node.insert(place, cast)
    model = onnx.shape_inference.infer_shapes(model)
    typed = apply_fp16(model, [sample]).model
    assert types_of(typed)[node_named(typed, "again_cast").output[0]] == TensorProto.FLOAT16
    (wanted,), (got,) = run_model(int8_model, [sample]), run_model(typed, [sample])
    for name, values in wanted.items():
        assert measure_sqnr_db(values, got[name]) > 30


@pytest.mark.parametrize("is_cast", [False, True])
def test_a_network_with_inputs_and_outputs_in_fp16_keeps_them(is_cast, sample, float_model):
    model = onnx.ModelProto()
    model.CopyFrom(float_model)
    if is_cast:
        _put_casts_around(model)
    else:
        _halve(model)
    halves = {name: value.astype(np.float16) for name, value in sample.items()}
    result = apply_fp16(onnx.shape_inference.infer_shapes(model), [halves])
    for value in (*result.model.graph.input, *result.model.graph.output):
        assert value.type.tensor_type.elem_type == TensorProto.FLOAT16
    assert min(result.sqnr_db.values()) > 50


def _halve(model):
    """What model.half() exports: inputs, weights and outputs in FP16."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    del model.graph.value_info[:]


def _put_casts_around(model):
    """What `compress quantize` makes of it: FP32 between the Casts of inputs and outputs."""
    inner = {value.name: f"{value.name}_float32" for value in model.graph.output}
    source = model.graph.input[0].name
    inner[source] = f"{source}_float32"
    for node in model.graph.node:
        node.input[:] = [inner.get(name, name) for name in node.input]
        node.output[:] = [inner.get(name, name) for name in node.output]
    cast = helper.make_node("Cast", [source], [inner[source]], "widen", to=TensorProto.FLOAT)
    model.graph.node.insert(0, cast)
    for value in model.graph.output:
        name = value.name
        model.graph.node.append(
            helper.make_node("Cast", [inner[name]], [name], f"{name}_cast", to=TensorProto.FLOAT16)
        )
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    del model.graph.value_info[:]
