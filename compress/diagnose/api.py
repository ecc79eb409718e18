"""Diagnoses a quantization: `diagnose_model` is what the command line and users call."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx

from artifacts.errors import FramefitError
from compress.diagnose.layers import inspect_layers
from compress.diagnose.remedies import Proposal, combine, propose_remedies
from compress.diagnose.report import LEAST_GAIN_DB, Diagnosis, Remedy
from compress.errors import CalibrationError
from compress.head_judge import HeadJudge
from compress.progress import Progress
from compress.quantize.api import quantize_model
from compress.quantize.blas_threads import share_blas
from compress.quantize.graph import Array
from compress.quantize.prepare import prepare_network
from compress.quantize.search.sensitivity import measure_layers
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass

JUDGED_EVERY = 4
"""One sample of so many judges; fewer samples than that calibrate and judge alike."""


@share_blas()
def diagnose_model(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings | None = None,
    progress: Progress | None = None,
    *,
    keeps_target: bool = False,
) -> Diagnosis:
    """Quantizes a float model, finds what costs its heads quality, and tries what may help.

    Args:
        model: as for `quantize_model`; it is not changed.
        samples: every fourth one judges, the others calibrate; all do both where they are fewer.
        settings: how to quantize; `prefer`, `within_ms` and contracts are left aside.
        progress: is told (what, done, total).
        keeps_target: no other runtime is proposed.

    Raises:
        AlreadyQuantizedError, CalibrationError, InputError: as `quantize_model`.
    """
    settings = replace(
        settings or QuantizeSettings(),
        prefer=None,
        within_ms=None,
        contracts=(),
        looks_into_poor=False,
    )
    calibration, judged = _split(samples)
    prepared = prepare_network(model, calibration, settings)
    walk = StreamingPass(prepared, settings)
    decisions = walk.run(calibration, progress)
    (matrix,) = measure_layers(prepared, decisions, [calibration], progress=progress)
    layers = inspect_layers(prepared, decisions, matrix, calibration, progress)
    judge = HeadJudge(prepared.write_float(), judged, matrix.heads, matrix.parts)
    heads_db = judge.measure(prepared.write_model(decisions))
    weights_only = replace(settings, activations="float")
    alone = quantize_model(model, calibration, weights_only, progress)
    proposals = propose_remedies(settings, layers, keeps_target=keeps_target)
    remedies = _try_all(model, calibration, proposals, judge, heads_db, progress)
    return Diagnosis(
        heads=matrix.heads,
        heads_db=heads_db,
        weights_only_db=judge.measure(alone.model),
        layers=layers,
        remedies=remedies,
        calibration_samples=len(calibration),
        judged_samples=len(judged),
        is_held_out=judged is not calibration,
    )


def _split(
    samples: Sequence[dict[str, Array]],
) -> tuple[Sequence[dict[str, Array]], Sequence[dict[str, Array]]]:
    if len(samples) == 0:
        raise CalibrationError("there are no calibration samples", "at least 1")
    if len(samples) < JUDGED_EVERY:
        whole = [samples[index] for index in range(len(samples))]
        return whole, whole
    parts: tuple[list[dict[str, Array]], list[dict[str, Array]]] = ([], [])
    for index in range(len(samples)):
        parts[index % JUDGED_EVERY == JUDGED_EVERY - 1].append(samples[index])
    return parts


def _try_all(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    proposals: Sequence[Proposal],
    judge: HeadJudge,
    before: Mapping[str, float],
    progress: Progress | None,
) -> tuple[Remedy, ...]:
    tried: list[tuple[Proposal, Remedy]] = []
    for done, proposal in enumerate(proposals):
        if progress is not None:
            progress("try remedies", done, len(proposals) + 1)
        tried += _try(model, samples, proposal, judge, before)
    both = _best_pair(tried)
    if both is not None:
        tried += _try(model, samples, both, judge, before)
    if progress is not None:
        progress("try remedies", len(proposals) + 1, len(proposals) + 1)
    return tuple(sorted((remedy for _, remedy in tried), key=lambda item: -item.gain_db))


def _try(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    proposal: Proposal,
    judge: HeadJudge,
    before: Mapping[str, float],
) -> list[tuple[Proposal, Remedy]]:
    """Measures a proposal; nothing is returned for one that this network cannot have."""
    try:
        result = quantize_model(model, samples, proposal.settings)
    except FramefitError:
        return []
    after = judge.measure(result.model)
    gains = [after[head] - value for head, value in before.items()]
    remedy = Remedy(
        options=proposal.options,
        why=proposal.why,
        cost=proposal.cost,
        heads_db=after,
        gain_db=float(np.mean(gains)),
        worst_gain_db=min(gains),
    )
    return [(proposal, remedy)]


def _best_pair(tried: Sequence[tuple[Proposal, Remedy]]) -> Proposal | None:
    """Returns the best remedy without and the best with layers in float, if both help."""
    helpful = sorted(
        (item for item in tried if item[1].gain_db >= LEAST_GAIN_DB),
        key=lambda item: -item[1].gain_db,
    )
    kept = [item for item, _ in helpful if "--keep-float" in item.options]
    other = [item for item, _ in helpful if "--keep-float" not in item.options]
    return combine(other[0], kept[0]) if kept and other else None
