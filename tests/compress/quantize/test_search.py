"""Which layers stay in float: the sensitivity matrix and the choice by time and error."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, shape_inference

from artifacts.errors import InputError
from artifacts.ownership import TRUNK
from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.prepare import prepare_network
from compress.quantize.search.candidates import list_meeting_sets, predict_db
from compress.quantize.search.contract import Contract, Finding
from compress.quantize.search.precision import CHALLENGE_STEP_DB
from compress.quantize.search.proposals import Proposer
from compress.quantize.search.sensitivity import SensitivityMatrix, measure_layers
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass
from compress.sqnr import EXACT_DB


def clock_by_float_layers(models):
    """A machine on which each Conv in float costs 2 ms and each in INT8 1 ms, the rest 10 ms."""
    return [
        10.0 + sum(2.0 if _reads_float(model, node) else 1.0 for node in _convs(model))
        for model in models
    ]


def clock_that_dislikes_int8(models):
    return [5.0 - sum(_reads_float(model, node) for node in _convs(model)) for model in models]


def _convs(model):
    return [node for node in model.graph.node if node.op_type == "Conv"]


def _reads_float(model, node):
    made = {name: item for item in model.graph.node for name in item.output}
    return node.input[1] not in made


def settings(**changes) -> QuantizeSettings:
    return QuantizeSettings(target="openvino", equalization=False, **changes)


def measure_sensitivity(model, samples) -> SensitivityMatrix:
    """Quantizes a float model and measures each layer's share of the error on the same samples."""
    prepared = prepare_network(model, samples, settings())
    decisions = StreamingPass(prepared, settings()).run(samples)
    (matrix,) = measure_layers(prepared, decisions, [samples])
    return matrix


def test_the_matrix_finds_the_layer_that_costs_a_head_its_quality(outlier_model):
    model, samples = outlier_model
    matrix = measure_sensitivity(model, samples)
    worst = matrix.layers[int(np.argmax(matrix.noise[:, matrix.outputs.index("left")]))]
    assert worst == "reader"
    row = matrix.noise[matrix.layers.index("calm")]
    assert row[matrix.outputs.index("left")] == 0
    assert row[matrix.outputs.index("right")] > 0
    assert matrix.owners == {"stem": TRUNK, "wide": "left", "reader": "left", "calm": "right"}
    assert matrix.shares().sum() == pytest.approx(1)


def test_rows_add_up_to_the_noise_of_the_whole_network(outlier_model):
    model, samples = outlier_model
    matrix = measure_sensitivity(model, samples)
    result = quantize_model(model, samples, settings())
    for column, name in enumerate(matrix.outputs):
        noise = 10 ** (-result.outputs_db[name] / 10)
        assert 0.4 * noise < matrix.noise[:, column].sum() < 2.5 * noise


@pytest.fixture
def joined_model(outlier_model) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """As a detector is exported: boxes in pixels and scores from 0 to 1, joined to one output."""
    model, samples = outlier_model
    nodes = [
        helper.make_node("Mul", ["right", "pixels"], ["boxes"]),
        helper.make_node("Sigmoid", ["left"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores"], ["both"], axis=1),
    ]
    model.graph.node.extend(nodes)
    model.graph.initializer.append(
        numpy_helper.from_array(np.full((1, 1, 1, 1), 300, np.float32), "pixels")
    )
    del model.graph.output[:]
    model.graph.output.append(
        helper.make_tensor_value_info("both", onnx.TensorProto.FLOAT, (1, 8, 12, 12))
    )
    return model, samples


def test_scores_beside_boxes_in_one_output_are_not_forgotten(joined_model):
    model, samples = joined_model
    matrix = measure_sensitivity(model, samples)
    boxes, scores = "both[:, 0:4]", "both[:, 4:8]"
    assert matrix.heads == {"both": ("both",), boxes: (boxes,), scores: (scores,)}
    noise = dict(zip(matrix.heads, matrix.head_noise()[matrix.layers.index("reader")], strict=True))
    assert noise[boxes] == 0
    assert noise[scores] > 100 * noise["both"] > 0
    result = quantize_model(model, samples, settings(prefer="quality"), clock=clock_by_float_layers)
    assert "reader" in result.precision.float_nodes


def test_scores_beside_boxes_are_measured_by_themselves(joined_model):
    model, samples = joined_model
    result = quantize_model(model, samples, settings())
    found = compare_models(shape_inference.infer_shapes(model), result.model, samples)
    assert result.parts_db.keys() == found["parts"].keys() == {"both[:, 0:4]", "both[:, 4:8]"}
    for name, figures in found["parts"].items():
        assert result.parts_db[name] == pytest.approx(figures["sqnr_db"], abs=1.0)
    assert result.parts_db["both[:, 4:8]"] < result.outputs_db["both"] - 10


def test_a_contract_on_a_joined_output_is_kept(joined_model):
    model, samples = joined_model
    wanted = settings(prefer="speed", contracts=(Contract(head="both", limit=20.0),))
    result = quantize_model(model, samples, wanted, clock=clock_by_float_layers)
    assert [finding.is_kept for finding in result.precision.findings] == [True]


def test_quality_keeps_the_costly_layer_in_float_and_says_why(outlier_model):
    model, samples = outlier_model
    plain = quantize_model(model, samples, settings())
    result = quantize_model(model, samples, settings(prefer="quality"), clock=clock_by_float_layers)
    assert result.precision is not None
    assert "reader" in result.precision.float_nodes
    assert {item.node for item in result.layers}.isdisjoint(result.precision.float_nodes)
    reasons = {item.node: item.reason for item in result.declined}
    assert "% of the quantization noise" in reasons["reader"]
    after = compare_models(model, result.model, samples)["outputs"]
    assert after["left"]["sqnr_db"] > plain.outputs_db["left"] + 3
    assert result.precision.chosen.latency_ms < result.precision.float_ms


class OptimisticClock:
    """A machine on which a network with 2 layers or more in float was lucky when first timed."""

    def __init__(self):
        self._seen = set()

    def __call__(self, models):
        return [self._time(model) for model in models]

    def _time(self, model):
        convs = _convs(model)
        kept = frozenset(node.name for node in convs if _reads_float(model, node))
        was_lucky = len(kept) >= 2 and kept not in self._seen
        self._seen.add(kept)
        if len(kept) == len(convs):
            return 20.0
        return 10.0 + 0.3 * len(kept) + 1.5 * (len(kept) >= 2 and not was_lucky)


def make_chain(make_model):
    """Returns eight Convs one behind the other, with samples."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((4, 4, 1, 1)).astype(np.float32) for i in range(8)}
    names = ["x", *(f"t{i}" for i in range(7)), "y"]
    nodes = [
        node
        for i in range(8)
        for node in (
            helper.make_node("Conv", [names[i], f"w{i}"], [f"c{i}"], f"conv{i}"),
            helper.make_node("Sin", [f"c{i}"], [names[i + 1]]),
        )
    ]
    model = make_model(nodes, weights, {"x": (1, 4, 6, 6)}, ["y"])
    return model, [{"x": rng.standard_normal((1, 4, 6, 6)).astype(np.float32)} for _ in range(2)]


def test_sets_that_were_lucky_once_give_way_to_smaller_ones(make_model):
    """`quality` allows 12 ms: five sets of 2 layers or more come in first, and none stays."""
    model, samples = make_chain(make_model)
    result = quantize_model(model, samples, settings(prefer="quality"), clock=OptimisticClock())
    chosen = result.precision.chosen
    assert len(chosen.float_nodes) == 1
    assert chosen.latency_ms <= 12.0


class UnevenClock:
    """A machine whose first timing of each network is off by up to 5 %, all others are right."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)
        self._seen = set()

    def __call__(self, models):
        return [self._time(model) for model in models]

    def true_ms(self, count):
        return 20.0 if count == 8 else 10.0 + 0.45 * count

    def _time(self, model):
        convs = _convs(model)
        kept = frozenset(node.name for node in convs if _reads_float(model, node))
        is_first = kept not in self._seen and 0 < len(kept) < 8
        self._seen.add(kept)
        return self.true_ms(len(kept)) * (self._rng.uniform(0.95, 1.05) if is_first else 1.0)


@pytest.mark.parametrize("seed", range(8))
def test_no_set_that_was_timed_looks_better_than_the_chosen_one(make_model, seed):
    """`quality` allows 12 ms: four of eight layers in float."""
    model, samples = make_chain(make_model)
    clock = UnevenClock(seed)
    choice = quantize_model(model, samples, settings(prefer="quality"), clock=clock).precision
    chosen = choice.chosen
    assert chosen.latency_ms == pytest.approx(clock.true_ms(len(chosen.float_nodes)))
    within = [item for item in choice.tried if clock.true_ms(len(item.float_nodes)) <= 12.0]
    assert chosen.quality_db > max(item.quality_db for item in within) - CHALLENGE_STEP_DB
    better = [item for item in choice.frontier if item.quality_db > chosen.quality_db]
    assert all(item.latency_ms > chosen.latency_ms for item in better)


def test_speed_quantizes_all_where_all_is_fastest(outlier_model):
    model, samples = outlier_model
    result = quantize_model(model, samples, settings(prefer="speed"), clock=clock_by_float_layers)
    assert result.precision is not None
    assert not result.precision.float_nodes
    assert len(result.layers) == 4


@pytest.mark.parametrize("prefer", ["speed", "balanced", "quality"])
def test_a_network_that_int8_slows_down_stays_in_float(outlier_model, prefer):
    model, samples = outlier_model
    result = quantize_model(model, samples, settings(prefer=prefer), clock=clock_that_dislikes_int8)
    assert result.precision is not None
    assert result.precision.is_float
    assert not any(node.op_type == "QuantizeLinear" for node in result.model.graph.node)
    after = compare_models(model, result.model, samples)["outputs"]
    assert min(values["sqnr_db"] for values in after.values()) > 100


def clock_with_int8_share(share):
    """A machine on which a float network takes 10 ms, and one with integers a share of it."""

    def measure(models):
        kinds = [{node.op_type for node in model.graph.node} for model in models]
        return [10.0 * (share if "QuantizeLinear" in found else 1.0) for found in kinds]

    return measure


@pytest.mark.parametrize("prefer", [None, "speed", "balanced"])
@pytest.mark.parametrize(("share", "is_float"), [(0.99, True), (0.97, False)])
def test_a_gain_that_timings_do_not_tell_apart_is_none(outlier_model, prefer, share, is_float):
    model, samples = outlier_model
    clock = clock_with_int8_share(share)
    result = quantize_model(model, samples, settings(prefer=prefer), clock=clock)
    assert result.precision is not None
    assert result.precision.is_float is is_float


def test_the_float_network_is_not_faster_than_itself(outlier_model):
    """Of two timings of it, as the reference and as a set of layers, one is always shorter."""
    model, samples = outlier_model

    def measure(models):
        is_int8 = [
            any(node.op_type == "QuantizeLinear" for node in one.graph.node) for one in models
        ]
        reference = is_int8.index(False) if False in is_int8 else None
        return [
            12.0 if quantized else 10.0 if at == reference else 8.0
            for at, quantized in enumerate(is_int8)
        ]

    result = quantize_model(model, samples, settings(prefer="speed"), clock=measure)
    assert result.precision is not None
    assert result.precision.is_float
    assert result.precision.chosen.latency_ms == result.precision.float_ms


@pytest.mark.parametrize("kind", ["sqnr", "agreement"])
def test_a_network_that_stays_in_float_says_that_it_keeps_its_contracts(outlier_model, kind):
    model, samples = outlier_model
    contract = Contract(head="left", kind=kind, limit=1.0)
    result = quantize_model(
        model,
        samples,
        settings(prefer="speed", contracts=(contract,)),
        clock=clock_that_dislikes_int8,
    )
    assert result.precision is not None
    assert result.precision.is_float
    assert [(item.contract, item.is_kept) for item in result.precision.findings] == [
        (contract, True)
    ]


def test_the_smallest_sets_that_meet_floors_are_found(outlier_model):
    model, samples = outlier_model
    matrix = measure_sensitivity(model, samples)
    plain = predict_db(matrix, frozenset())
    floors = {"left": plain["left"] + 6, "right": plain["right"] + 2}
    sets = list_meeting_sets(matrix, floors)
    assert sets
    for kept in sets:
        assert all(predict_db(matrix, kept)[head] >= floor for head, floor in floors.items())
    smallest = min(len(kept) for kept in sets)
    assert smallest < len(matrix.layers)
    assert [len(kept) for kept in sets] == list(range(smallest, len(matrix.layers) + 1))


def test_a_contract_that_no_trial_met_is_sought(outlier_model, monkeypatch):
    """Three of four layers have to stay in float, which no set to begin with holds."""
    monkeypatch.setattr(Proposer, "propose", lambda *_: [])
    model, samples = outlier_model
    matrix = measure_sensitivity(model, samples)
    alone = predict_db(matrix, frozenset(matrix.layers) - {"calm"})
    contracts = (
        Contract(head="right", limit=alone["right"] - 4),
        Contract(head="left", limit=60.0),
    )
    result = quantize_model(
        model,
        samples,
        settings(prefer="speed", contracts=contracts),
        clock=clock_by_float_layers,
    )
    assert result.precision is not None
    assert not result.precision.broken
    assert len(result.layers) == 1


def test_a_contract_is_kept_beyond_what_speed_alone_would_choose(outlier_model):
    model, samples = outlier_model
    plain = quantize_model(model, samples, settings())
    floor = plain.outputs_db["left"] + 3
    result = quantize_model(
        model,
        samples,
        settings(prefer="speed", contracts=(Contract(head="left", limit=floor),)),
        clock=clock_by_float_layers,
    )
    assert result.precision is not None
    assert not result.precision.broken
    assert result.outputs_db["left"] >= floor


def test_a_contract_that_cannot_be_kept_is_reported(outlier_model):
    model, samples = outlier_model
    contracts = tuple(Contract(head=head, limit=150.0) for head in ("left", "right"))
    wanted = settings(prefer="speed", contracts=contracts)
    result = quantize_model(model, samples, wanted, clock=clock_by_float_layers)
    assert result.precision is not None
    assert result.precision.broken


def test_a_contract_on_an_unknown_head_is_refused(outlier_model):
    model, samples = outlier_model
    wanted = settings(prefer="speed", contracts=(Contract(head="middle", limit=10.0),))
    with pytest.raises(InputError, match="head 'middle'"):
        quantize_model(model, samples, wanted, clock=clock_by_float_layers)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefer": "fast"},
        {"prefer": "speed", "within_ms": 5.0},
        {"within_ms": 0.0},
        {"within_ms": float("nan")},
        {"contracts": (Contract(head="left", limit=1.0),)},
        {"activations": "int7"},
    ],
)
def test_senseless_settings_are_refused(wrong):
    with pytest.raises(InputError):
        settings(**wrong)


@pytest.mark.parametrize("wish", [{"prefer": "speed"}, {"within_ms": 15.0}])
def test_preferring_without_a_clock_is_refused(outlier_model, wish):
    model, samples = outlier_model
    with pytest.raises(InputError, match="no clock"):
        quantize_model(model, samples, settings(**wish))


def test_a_latency_is_kept_and_spent_on_quality(outlier_model):
    """All four layers in INT8 take 14 ms, each in float one more; float takes 18 ms."""
    model, samples = outlier_model
    worst_db = []
    for within_ms in (14.0, 15.0, 16.0, 17.0):
        result = quantize_model(
            model, samples, settings(within_ms=within_ms), clock=clock_by_float_layers
        )
        assert result.precision.chosen.latency_ms == within_ms
        assert clock_by_float_layers([result.model]) == [within_ms]
        worst_db.append(min(result.outputs_db.values()))
    assert worst_db == sorted(worst_db)
    assert worst_db[-1] > worst_db[0] + 10


def test_a_latency_that_float_keeps_is_told_of_and_quality_comes_first(outlier_model, caplog):
    model, samples = outlier_model
    result = quantize_model(model, samples, settings(within_ms=20.0), clock=clock_by_float_layers)
    assert "the float network takes 18.00 ms and is fast enough" in caplog.text
    assert result.precision.chosen.latency_ms == 17


def test_a_latency_that_no_network_keeps_is_refused_with_what_is_possible(outlier_model):
    model, samples = outlier_model
    with pytest.raises(InputError, match=r"within_ms is 13, .* takes 14 ms; expected 14 or more"):
        quantize_model(model, samples, settings(within_ms=13.0), clock=clock_by_float_layers)
    contracts = (Contract(head="left", limit=60.0),)
    wish = settings(within_ms=14.0, contracts=contracts)
    with pytest.raises(InputError, match=r"within_ms is 14, .* that keeps the contracts takes"):
        quantize_model(model, samples, wish, clock=clock_by_float_layers)


@pytest.mark.parametrize(("activations", "gain_db"), [("int16", 3), ("float", 3)])
def test_finer_activations_lose_less(outlier_model, activations, gain_db):
    model, samples = outlier_model
    coarse = quantize_model(model, samples, settings())
    fine = quantize_model(model, samples, settings(activations=activations))
    after = compare_models(model, fine.model, samples)["outputs"]
    for name, before in coarse.outputs_db.items():
        assert after[name]["sqnr_db"] > before + gain_db
        assert after[name]["sqnr_db"] == pytest.approx(fine.outputs_db[name], abs=1.0)
    quantizers = [node for node in fine.model.graph.node if node.op_type == "QuantizeLinear"]
    assert bool(quantizers) == (activations == "int16")


@pytest.mark.parametrize(("activations", "is_clipped"), [("int16", False), ("int8", True)])
def test_integers_of_16_bits_reach_what_calibration_did_not(outlier_model, activations, is_clipped):
    model, samples = outlier_model
    network = quantize_model(model, samples, settings(activations=activations)).model
    brighter = [{name: 2.5 * value for name, value in item.items()} for item in samples]
    seen, unseen = (compare_models(model, network, data)["outputs"] for data in (samples, brighter))
    lost_db = [seen[name]["sqnr_db"] - unseen[name]["sqnr_db"] for name in seen]
    assert (max(lost_db) > 10) is is_clipped


def test_a_contract_on_agreement_is_kept(outlier_model):
    model, samples = outlier_model
    plain = quantize_model(model, samples, settings())
    before = compare_models(model, plain.model, samples)["outputs"]["left"]["agreement"]
    wanted = Contract(head="left", kind="agreement", limit=(1 + before) / 2)
    result = quantize_model(
        model,
        samples,
        settings(prefer="speed", contracts=(wanted,)),
        clock=clock_by_float_layers,
    )
    assert result.precision is not None
    assert before < wanted.limit
    assert not result.precision.broken
    assert result.precision.findings[0].value >= wanted.limit


def test_a_judge_with_labels_makes_the_search_go_on(outlier_model):
    model, samples = outlier_model
    judged = []

    def judge(candidate):
        judged.append(candidate)
        share = sum(_reads_float(candidate, node) for node in _convs(candidate)) / 4
        return {"left": 0.1 - 0.2 * share}

    contract = Contract(head="left", kind="drop", limit=0.06)
    result = quantize_model(
        model,
        samples,
        settings(prefer="speed", contracts=(contract,)),
        clock=clock_by_float_layers,
        judge=judge,
    )
    assert result.precision is not None
    assert len(judged) > 1
    assert result.precision.findings[0].value <= 0.06


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (Contract(head="left", kind="drop", limit=0.1), "no labels"),
        (Contract(head="middle", limit=40), "names head 'middle'; expected one of left, "),
    ],
)
def test_a_contract_that_nothing_measures_is_refused_at_once(contract, said, outlier_model):
    def clock(models):
        raise AssertionError("it was timed before")

    model, samples = outlier_model
    with pytest.raises(InputError, match=said):
        quantize_model(model, samples, settings(prefer="speed", contracts=(contract,)), clock=clock)


def test_a_finding_is_told_with_its_unit():
    kept = Finding(contract=Contract(head="boxes", limit=40), value=41.25)
    assert str(kept) == "head 'boxes' has sqnr 41.25 dB, at least 40"
    broken = Finding(contract=Contract(head="depth", kind="drop", limit=0.01), value=0.02)
    assert str(broken) == "head 'depth' has drop 0.02, at most 0.01"


@pytest.mark.parametrize(
    ("text", "head", "kind", "limit"),
    [
        ("detection=30", "detection", "sqnr", 30.0),
        ("depth:drop=0.01", "depth", "drop", 0.01),
        ("a:b=3", "a:b", "sqnr", 3.0),
        ("a:b:agreement=0.9", "a:b", "agreement", 0.9),
    ],
)
def test_contracts_are_read(text, head, kind, limit):
    assert Contract.parse(text) == Contract(head=head, kind=kind, limit=limit)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("depth:agreement=1.5", "from 0 to 1"),
        ("depth:agreement=-0.1", "from 0 to 1"),
        ("depth:drop=-0.01", "0 or more"),
        ("depth=nan", "200 at most"),
        ("depth=inf", "200 at most"),
        ("depth:drop=nan", "0 or more"),
    ],
)
def test_limits_that_nothing_or_everything_keeps_are_refused(text, expected):
    with pytest.raises(InputError, match=f"head 'depth'.*{expected}"):
        Contract.parse(text)


@pytest.mark.parametrize("text", ["detection", "detection=", "detection=much"])
def test_senseless_contracts_are_refused(text):
    with pytest.raises(InputError, match="--contract"):
        Contract.parse(text)


def test_with_a_clock_the_result_is_timed(residual_model, samples):
    result = quantize_model(residual_model, samples, settings(), clock=clock_by_float_layers)
    assert result.precision is not None
    assert (result.precision.float_ms, result.precision.int8_ms) == (16.0, 13.0)
    assert not result.precision.float_nodes
    assert result.outputs_db == quantize_model(residual_model, samples, settings()).outputs_db


def test_what_int8_slows_down_stays_in_float_without_being_asked(outlier_model, caplog):
    model, samples = outlier_model
    result = quantize_model(model, samples, settings(), clock=clock_that_dislikes_int8)
    assert result.precision is not None
    assert result.precision.is_float
    assert "INT8 is not faster than float" in caplog.text
    assert result.outputs_db == dict.fromkeys(["left", "right"], EXACT_DB)


@pytest.mark.parametrize(
    "slow", [{"group": 8, "pads": [1] * 4}, {"dilations": [2, 2], "pads": [2] * 4}]
)
def test_a_kind_of_layer_that_int8_slows_down_is_found(slow, make_model):
    """Convolutions gain 1 ms each; the depthwise, or the dilated, ones lose 3 ms each."""
    rng = np.random.default_rng(0)
    weights, nodes = {}, []
    for index in range(4):
        extra = slow if index % 2 else {}
        shape = (8, 8 // extra.get("group", 1), *([3, 3] if extra else [1, 1]))
        weights[f"w{index}"] = rng.standard_normal(shape).astype(np.float32)
        names = [f"t{index}", f"w{index}"], [f"t{index + 1}"]
        nodes.append(helper.make_node("Conv", *names, f"conv{index}", **extra))
    model = make_model(nodes, weights, {"t0": (1, 8, 12, 12)}, ["t4"])
    samples = [{"t0": rng.standard_normal((1, 8, 12, 12)).astype(np.float32)} for _ in range(2)]

    def clock(models):
        return [
            10.0
            + sum(
                (3.0 if set(slow) & {entry.name for entry in node.attribute} else -1.0)
                for node in _convs(item)
                if not _reads_float(item, node)
            )
            for item in models
        ]

    result = quantize_model(model, samples, settings(prefer="speed"), clock=clock)
    assert result.precision is not None
    assert set(result.precision.float_nodes) == {"conv1", "conv3"}
    assert result.precision.chosen.latency_ms == 8.0


def test_a_node_that_moves_values_may_stay_in_float_and_says_why(make_model):
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((3, 3, 1, 1)).astype(np.float32) for name in ("v", "w")}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], "first"),
        helper.make_node("MaxPool", ["a"], ["b"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["b", "w"], ["y"], "second"),
    ]
    model = make_model(nodes, weights, {"x": (1, 3, 8, 8)}, ["y"])
    samples = [{"x": rng.random((1, 3, 8, 8), np.float32)} for _ in range(2)]

    def clock_that_dislikes_pools(models):
        def time(model):
            made = {name: node for node in model.graph.node for name in node.output}
            reads = {node.op_type: made.get(node.input[0]) for node in model.graph.node}
            is_moved = reads["MaxPool"].op_type == "DequantizeLinear"
            return 10.0 if reads["Conv"].op_type == "MaxPool" else 6.0 + 2.0 * is_moved

        return [time(model) for model in models]

    choice = quantize_model(
        model,
        samples,
        QuantizeSettings(target="openvino", prefer="quality"),
        clock=clock_that_dislikes_pools,
    ).precision
    assert "only moves values" in choice.float_nodes["pool"]
