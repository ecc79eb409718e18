"""What `compress quantize` prints of its result."""

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from compress.quantize.result import CostlyLayers
from compress.quantize.search.candidates import Candidate
from compress.quantize.search.contract import Contract, Finding
from compress.quantize.search.precision import PrecisionChoice
from compress.quantize.settings import QuantizeSettings
from compress.sqnr import EXACT_DB
from framefit.commands.quantize_result import describe_size, show_errors, show_outcome
from framefit.quantize_outcome import QuantizeOutcome
from framefit.target_check import TargetCheck


def show(layers, precision=None, costly=None, out="y.onnx"):
    """Prints the outcome of so many quantized layers."""
    result = SimpleNamespace(
        outputs_db={"y": 40.0},
        parts_db={"y[0:4]": 38.0, "y[4:8]": 21.0},
        settings=QuantizeSettings(),
        layers=(SimpleNamespace(weight_bits=8),) * layers,
        declined=(),
        precision=precision,
        costly=costly,
    )
    outcome = QuantizeOutcome(
        out=Path(out),
        source=Path("x.onnx"),
        result=result,
        target="openvino",
        samples=4,
        float_bytes=2,
        int8_bytes=2,
        check=None,
    )
    show_outcome(outcome, is_verbose=False)


@pytest.mark.parametrize(("layers", "is_shown"), [(1, True), (0, False)])
def test_a_network_that_stays_in_float_has_no_table_of_sqnr(layers, is_shown, capsys):
    show(layers)
    assert ("SQNR" in capsys.readouterr().out) == is_shown


def test_the_command_that_times_it_can_be_copied(capsys):
    show(1, out="a map/y.onnx")
    line = next(line for line in capsys.readouterr().out.splitlines() if "engines bench" in line)
    command = line.partition("target: ")[2]
    assert shlex.split(command) == ["framefit", "engines", "bench", "a map/y.onnx"]


def test_an_output_without_any_error_is_exact(capsys):
    show_errors({"y": EXACT_DB, "z": 40.0}, None, {})
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert rows[-2:] == [["y", "exact"], ["z", "40.0"]]


def test_a_part_that_was_not_measured_on_the_target_has_no_figure_there(capsys):
    check = TargetCheck(runtime="openvino", samples=4, outputs_db={"y": 39.0}, said_db={})
    states = {"y": {"own_states_db": 30.0, "own_states_end_db": 29.0}}
    show_errors({"y": 40.0, "y[:, 4:8]": 21.0}, check, states)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert rows[-2:] == [
        ["y", "40.0", "39.0", "30.0", "29.0"],
        ["y[:,", "4:8]", "21.0", "-", "-", "-"],
    ]


def test_costly_layers_are_named_with_what_they_bring(capsys):
    costly = CostlyLayers(
        layers={"bev/Conv": {"y": 0.62}},
        int8_db={"y": 18.0, "z": 40.0},
        float_db={"y": 35.0, "z": 41.0},
    )
    chosen = Candidate(float_nodes=frozenset(costly.layers), latency_ms=2.0)
    choice = PrecisionChoice(
        float_nodes={"bev/Conv": "why"},
        float_ms=3.0,
        int8_ms=1.9,
        chosen=chosen,
        tried=(chosen, chosen),
    )
    show(1, choice, costly)
    kept = capsys.readouterr().out
    assert "62% of the noise of y comes of bev/Conv, now in float: y 18.0 to 35.0 dB" in kept
    assert "1 layer stays in float" in kept
    show(1, None, replace(costly, float_db={}))
    named = capsys.readouterr().out
    assert "62% of the noise of y comes of bev/Conv; to leave it in float: --keep-float" in named


def test_a_part_that_the_whole_hides_is_shown(capsys):
    show(1)
    shown = capsys.readouterr().out
    assert "y[4:8]" in shown
    assert "y[0:4]" not in shown


def candidate(latency_ms, db, count=0):
    """Returns a set of so many layers in float."""
    names = frozenset(f"layer{place}" for place in range(count))
    return Candidate(float_nodes=names, latency_ms=latency_ms, head_db={"y": db, "z": db - 4})


def test_what_other_latencies_would_bring_is_shown_with_what_was_chosen(capsys):
    chosen = candidate(2.2, 30.0, 3)
    hardly, worse, slow = candidate(2.3, 30.5), candidate(2.25, 20.0), candidate(3.1, 60.0)
    tried = (candidate(2.0, 24.0), slow, chosen, hardly, worse, candidate(2.6, 40.0, 9))
    choice = PrecisionChoice(float_nodes={}, float_ms=3.0, int8_ms=2.0, chosen=chosen, tried=tried)
    assert [item.latency_ms for item in choice.frontier] == [2.0, 2.2, 2.6]
    chose_more = replace(choice, chosen=hardly)
    assert [item.latency_ms for item in chose_more.frontier] == [2.0, 2.2, 2.3, 2.6]
    show(1, choice)
    said = capsys.readouterr().out
    assert "predicted: the SQNR that heads would have" in said
    lines = said.splitlines()
    shown = [line.split() for line in lines if line.split()[:1] in (["2.00"], ["2.20"], ["2.60"])]
    assert shown == [
        ["2.00", "0", "22.0", "20.0"],
        ["2.20", "3", "28.0", "26.0", "chosen"],
        ["2.60", "9", "38.0", "36.0"],
    ]


def test_a_set_that_one_timing_makes_better_than_the_chosen_one_is_not_offered():
    chosen, lucky = candidate(2.2, 30.0, 3), candidate(2.1, 35.0, 4)
    choice = PrecisionChoice(
        float_nodes={}, float_ms=3.0, int8_ms=2.0, chosen=chosen, tried=(chosen, lucky)
    )
    assert choice.frontier == (chosen,)
    assert lucky in replace(choice, finalists=frozenset({lucky.float_nodes})).frontier


def test_rows_beside_a_contract_are_said_to_be_without_it(capsys):
    chosen = candidate(2.2, 30.0, 3)
    tried = (candidate(2.0, 24.0), chosen)
    choice = PrecisionChoice(float_nodes={}, float_ms=3.0, int8_ms=2.0, chosen=chosen, tried=tried)
    for findings in ((), (Finding(contract=Contract(head="y", limit=20.0), value=30.0),)):
        show(1, replace(choice, findings=findings))
        assert ("the others may break them" in capsys.readouterr().out) == bool(findings)


def test_nothing_is_offered_where_quality_was_not_weighed(capsys):
    tried = tuple(Candidate(float_nodes=frozenset(), latency_ms=ms) for ms in (1.0, 2.0))
    choice = PrecisionChoice(
        float_nodes={}, float_ms=3.0, int8_ms=1.0, chosen=tried[0], tried=tried
    )
    assert choice.frontier == ()
    show(1, choice)
    assert "--within-ms" not in capsys.readouterr().out


@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize(("value", "word"), [(41.0, "kept"), (39.0, "broken")])
def test_what_becomes_of_contracts_is_said_whatever_stays_in_float(layers, value, word, capsys):
    finding = Finding(contract=Contract(head="y", limit=40.0), value=value)
    chosen = Candidate(float_nodes=frozenset(), latency_ms=2.0)
    choice = PrecisionChoice(
        float_nodes={},
        float_ms=1.0 + 2 * layers,
        int8_ms=2.0,
        chosen=chosen,
        tried=(chosen,),
        findings=(finding,),
    )
    show(layers, choice)
    assert f"contract {word}: head 'y'" in capsys.readouterr().out


def test_a_file_that_grew_is_not_called_smaller():
    """Constants that are computed beforehand may take more than INT8 weights save."""
    assert describe_size(4_000_000, 1_000_000) == "1.00 MB (4.0x smaller)"
    assert describe_size(2_000_000, 3_000_000) == "3.00 MB (1.5x larger)"
