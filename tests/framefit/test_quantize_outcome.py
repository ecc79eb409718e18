"""What `compress quantize` prints of its result."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from compress.quantize.settings import QuantizeSettings
from framefit.commands.quantize_result import show_outcome


@pytest.mark.parametrize(("layers", "is_shown"), [(1, True), (0, False)])
def test_a_network_that_stays_in_float_has_no_table_of_sqnr(layers, is_shown, capsys):
    result = SimpleNamespace(
        outputs_db={"y": 40.0},
        settings=QuantizeSettings(),
        layers=(SimpleNamespace(weight_bits=8),) * layers,
        declined=(),
        precision=None,
    )
    outcome = SimpleNamespace(
        result=result, out=Path("y.onnx"), samples=4, float_bytes=2, int8_bytes=2, check=None
    )
    show_outcome(outcome, is_verbose=False)
    assert ("SQNR" in capsys.readouterr().out) == is_shown
