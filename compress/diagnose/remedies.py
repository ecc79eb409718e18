"""What could help, and how much it really does: each remedy is tried and measured."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from artifacts.wording import count_of
from compress.diagnose.report import LayerDiagnosis
from compress.quantize.observers import OBSERVERS
from compress.quantize.placement import PLACEMENTS
from compress.quantize.rounding import ROUNDINGS, Nearest
from compress.quantize.settings import QuantizeSettings

NOISE_SHARE = 0.5
"""Layers are proposed for float until they make so much of the noise."""
MOST_FLOAT_LAYERS = 8
SINGLE_SHARE = 0.2
CLIPPING_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Options that may help.

    Attributes:
        settings: with the options.
        options: as they are typed.
        why: what speaks for them.
        cost: what they cost besides.
    """

    settings: QuantizeSettings
    options: tuple[str, ...]
    why: str
    cost: str


def propose_remedies(
    settings: QuantizeSettings, layers: Sequence[LayerDiagnosis], *, keeps_target: bool = False
) -> tuple[Proposal, ...]:
    """Returns what is worth trying, given the settings in use and the layers' diagnosis.

    Args:
        settings: those in use.
        layers: what was found of each.
        keeps_target: the runtime is decided: a file for another one helps nobody.
    """
    order = sorted(layers, key=lambda layer: -layer.share)
    return (
        *(() if keeps_target else _target(settings)),
        *_rounding(settings),
        *_observer(settings, order[:MOST_FLOAT_LAYERS]),
        *_float_layers(settings, order),
    )


def combine(first: Proposal, second: Proposal) -> Proposal:
    """Returns both in one; the second's `keep_float` is taken, all else is the first's."""
    return Proposal(
        settings=replace(first.settings, keep_float=second.settings.keep_float),
        options=(*first.options, *second.options),
        why="the best that leaves all layers in INT8, and the best that does not, together",
        cost="; ".join(cost for cost in (first.cost, second.cost) if cost),
    )


def _target(settings: QuantizeSettings) -> Iterator[Proposal]:
    if settings.target != "openvino" and "openvino" in PLACEMENTS:
        yield Proposal(
            settings=replace(settings, target="openvino"),
            options=("--target", "openvino"),
            why="OpenVINO's activations are asymmetric: their range need not be centred on 0",
            cost="the file is for OpenVINO",
        )


def _rounding(settings: QuantizeSettings) -> Iterator[Proposal]:
    if isinstance(settings.weight_rounding, Nearest) and "gptq" in ROUNDINGS:
        yield Proposal(
            settings=replace(settings, rounding=ROUNDINGS["gptq"]()),
            options=("--rounding", "gptq"),
            why="weights are rounded to make up for each other's error on the calibration data",
            cost="takes longer to make; the file is as fast",
        )


def _observer(settings: QuantizeSettings, layers: Sequence[LayerDiagnosis]) -> Iterator[Proposal]:
    findings = [finding for layer in layers for finding in layer.activations]
    clipped = [item for item in findings if item.clipping_share > CLIPPING_SHARE]
    outliers = [item for item in findings if item.outlier_channels]
    name = type(settings.observer).__name__
    if clipped and name != OBSERVERS["minmax"].__name__:
        yield Proposal(
            settings=replace(settings, observer=OBSERVERS["minmax"]()),
            options=("--observer", "minmax"),
            why=f"most of the error of {len(clipped)} costly activations comes from clipping",
            cost="",
        )
    if outliers and "auto" in OBSERVERS and name != OBSERVERS["auto"].__name__:
        yield Proposal(
            settings=replace(settings, observer=OBSERVERS["auto"]()),
            options=("--observer", "auto"),
            why=f"{len(outliers)} costly activations have outlier channels, which widen the range",
            cost="takes longer to make; the file is as fast",
        )


def _float_layers(
    settings: QuantizeSettings, order: Sequence[LayerDiagnosis]
) -> Iterator[Proposal]:
    if len(order) < 2:
        return
    chosen: list[LayerDiagnosis] = []
    for layer in order[: min(MOST_FLOAT_LAYERS, len(order) - 1)]:
        chosen.append(layer)
        if sum(item.share for item in chosen) >= NOISE_SHARE:
            break
    if len(chosen) > 1 and order[0].share >= SINGLE_SHARE:
        yield _keep_float(settings, chosen[:1])
    yield _keep_float(settings, chosen)


def _keep_float(settings: QuantizeSettings, layers: Sequence[LayerDiagnosis]) -> Proposal:
    names = [layer.node for layer in layers]
    share = sum(layer.share for layer in layers)
    count = count_of(len(names), "layer")
    return Proposal(
        settings=replace(settings, keep_float=(*settings.keep_float, *names)),
        options=tuple(word for name in names for word in ("--keep-float", name)),
        why=f"{count} {'makes' if len(names) == 1 else 'make'} {share:.0%} of the noise",
        cost=f"{count} in float; --prefer chooses such layers by their measured time too",
    )
