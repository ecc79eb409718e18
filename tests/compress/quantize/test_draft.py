"""A draft has integers of the same types in the same places as what is written in the end."""

import pytest

from compress.quantize.draft import draft_decisions
from compress.quantize.prepare import prepare_network
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass


@pytest.mark.parametrize("pattern", ["shuffle", "split", "head", "attention", "pyramid"])
@pytest.mark.parametrize(
    "settings",
    [
        QuantizeSettings(target="openvino"),
        QuantizeSettings(target="tensorrt"),
        QuantizeSettings(target="tensorrt", weights="int4"),
    ],
    ids=["openvino", "tensorrt", "int4"],
)
def test_a_draft_decides_what_the_pass_decides(make_pattern, samples, pattern, settings):
    model = make_pattern(pattern)
    prepared = prepare_network(model, samples, settings)
    draft = draft_decisions(prepared, settings, samples)
    whole = StreamingPass(prepared, settings).run(samples)
    assert {name: item.grid for name, item in draft.activations.items()} == {
        name: item.grid for name, item in whole.activations.items()
    }
    assert {name: (item.bits, item.block) for name, item in draft.weights.items()} == {
        name: (item.bits, item.block) for name, item in whole.weights.items()
    }
    prepared.write_uncorrected(draft)
