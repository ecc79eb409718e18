"""What `compress quantize` prints of its result."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from compress.quantize.result import CostlyLayers
from compress.quantize.search.candidates import Candidate
from compress.quantize.search.contract import Contract, Finding
from compress.quantize.search.precision import PrecisionChoice
from compress.quantize.settings import QuantizeSettings
from framefit.commands.quantize_result import show_outcome
from framefit.quantize_job import QuantizeOutcome


def show(layers, precision=None, costly=None):
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
        out=Path("y.onnx"),
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


def test_costly_layers_are_named_with_what_they_bring(capsys):
    costly = CostlyLayers(
        layers={"bev/Conv": ("y",)}, int8_db={"y": 18.0, "z": 40.0}, float_db={"y": 35.0, "z": 41.0}
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
    assert "most of the noise of y came of bev/Conv, now in float: y 18.0 to 35.0 dB" in kept
    assert "1 layer stays in float" in kept
    show(1, None, costly)
    assert "in float (--keep-float bev/Conv): y 18.0 to 35.0 dB" in capsys.readouterr().out


def test_a_part_that_the_whole_hides_is_shown(capsys):
    show(1)
    shown = capsys.readouterr().out
    assert "y[4:8]" in shown
    assert "y[0:4]" not in shown


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
