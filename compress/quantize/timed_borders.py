"""Whether layers at the border between integers and float are faster in integers, on onnxruntime.

A layer whose result an operator in float reads (GELU, LayerNormalization, Softmax) seldom pays for
its quantizers. Many such layers may: onnxruntime computes integers with the channels last and
float with the channels in blocks, and converts at each border. A ConvNeXt takes 0.84 of the time
when all its layers compute in integers, an EdgeNeXt 1.1, so a measurement decides.
"""

from collections.abc import Sequence
from dataclasses import replace

import onnx

from compress.quantize.draft import draft_decisions
from compress.quantize.graph import Array
from compress.quantize.prepare import prepare_network
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.settings import QuantizeSettings


def write_borders(
    model: onnx.ModelProto, samples: Sequence[dict[str, Array]], settings: QuantizeSettings
) -> dict[QuantizeSettings, onnx.ModelProto]:
    """Returns drafts without integers at borders and with, by the settings that ask for each.

    Where there is nothing to decide, the model stands alone. Drafts are made by one sample, as in
    `timed_forms`.

    Args:
        model: as for `quantize_model`.
        samples: its calibration samples.
        settings: how to quantize, for onnxruntime.
    """
    if settings.integer_borders is not None or settings.activations != "int8":
        return {settings: model}
    with_borders = replace(settings, integer_borders=True)
    few = samples[:1]
    network = prepare_network(model, few, with_borders, is_draft=True)
    without = replace(network, placement=settings.placement).with_float_nodes(network.kept)
    if without.quantized == network.quantized:
        return {settings: model}
    drafts = {settings: without, with_borders: network}
    return {item: _write(draft, item, few) for item, draft in drafts.items()}


def _write(
    network: PreparedNetwork, settings: QuantizeSettings, samples: Sequence[dict[str, Array]]
) -> onnx.ModelProto:
    return network.write_uncorrected(draft_decisions(network, settings, samples))
