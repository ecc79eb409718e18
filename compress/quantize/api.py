"""Quantizes an ONNX model: `quantize` takes files, `quantize_model` what was read from them."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from artifacts.array_samples import ArraySamples
from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from artifacts.onnx_file import load_before_plugins
from artifacts.onnx_inputs import input_tensors
from artifacts.onnx_metadata import read_input_spec
from artifacts.ownership import read_heads
from artifacts.plugin_tail import join_plugins
from artifacts.samples import Samples, open_samples, pick_evenly
from compress.constant_outputs import warn_of_constant
from compress.progress import Progress
from compress.quantize.blas_threads import share_blas
from compress.quantize.decision_log import DecisionLog
from compress.quantize.graph import Array
from compress.quantize.prepare import FEW_SAMPLES
from compress.quantize.result import QuantizeResult
from compress.quantize.search.contract import Judge, check_contracts
from compress.quantize.search.dominant_layers import name_dominant, time_dominant
from compress.quantize.search.int4_layers import choose_int8_weights
from compress.quantize.search.precision import Clock
from compress.quantize.search.preferred import search_precision, take_richer
from compress.quantize.search.stress import enlarge_quarters
from compress.quantize.settings import PREFERENCES, QuantizeSettings
from compress.quantize.timed_forms import Forms, choose_forms
from compress.quantize.work import Work

_log = logging.getLogger(__name__)


def quantize(
    model: onnx.ModelProto | Path | str,
    data: Sequence[dict[str, Array]] | Path | str,
    settings: QuantizeSettings | None = None,
    *,
    input_spec: InputSpec | None = None,
    limit: int | None = 32,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> QuantizeResult:
    """Quantizes a float network: files in, or objects.

    Args:
        model: a network, or the path of an `.onnx` file.
        data: a folder of pictures, an `.npz` with one array per input, or a sequence of
            dictionaries of input arrays (batch axis included).
        settings: how; the defaults suit TensorRT.
        input_spec: how pixels become the input; None for what the network's metadata says, and
            RGB scaled by 1/255 where it says nothing.
        limit: samples to use of a folder or `.npz`, evenly spread; None for all.
        progress: is told (what, done, total).
        clock: times networks on the target (`framefit.network_clock.NetworkClock`), see
            `quantize_model`.

    Returns:
        the quantized model with its report; `artifacts.onnx_file.save_onnx` writes it.

    Raises:
        InputError: the model, the data or a setting is not usable.
    """
    if isinstance(model, onnx.ModelProto):
        loaded, plugins = model, None
    else:
        loaded, plugins = load_before_plugins(Path(model))
    if isinstance(data, str | Path):
        spec = input_spec or read_input_spec(loaded) or InputSpec()
        samples: Samples = open_samples(data, input_tensors(loaded), spec, limit=limit)
    else:
        samples = ArraySamples(data, input_tensors(loaded))
    result = quantize_model(loaded, samples, settings, progress, clock)
    return replace(result, model=join_plugins(result.model, plugins))


@share_blas()
def quantize_model(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    log: DecisionLog | None = None,
    judge: Judge | None = None,
) -> QuantizeResult:
    """Quantizes a float model with calibration samples.

    Args:
        model: checked, of static shapes and opset 13 or newer (`artifacts.onnx_file.load_onnx`);
            it is not changed.
        samples: one dictionary of input arrays (batch axis included) per sample.
        settings: how; the defaults suit TensorRT.
        progress: is told (what, done, total).
        clock: times networks on the target; `settings.prefer` and `within_ms` need it. Without
            them the result is timed, and layers stay in float only where it is not faster than
            float.
        log: keeps decisions, so that a run that was killed goes on where it stopped. The caller
            names its folder after model, samples and settings, and removes it once the result is
            stored.
        judge: measures by how much each head's metric is worse than in float, for contracts on it.

    Returns:
        the quantized model with its report.

    Raises:
        AlreadyQuantizedError: the model holds integer operators.
        CalibrationError: there are no samples, or an activation is NaN or infinite.
        InputError: nothing in it can be quantized, or an operator cannot be run.
    """
    settings = settings or QuantizeSettings()
    if settings.allowance is not None and clock is None:
        raise InputError("prefer or within_ms was given, and there is no clock to time with")
    check_contracts(settings.contracts, read_heads(model), judge)
    _warn_of_constants(samples)
    log = log or DecisionLog()
    result = _quantize_checked(model, samples, settings, progress, clock, log, judge)
    for name, how in result.constant_outputs.items():
        _log.warning(
            "%s", warn_of_constant(f"output '{name}' of the float network", how, "calibration")
        )
    for name in set(result.fitted_outputs) - set(result.constant_outputs):
        _log.warning(
            "output '%s' is exact on the only calibration sample, where biases give back all that "
            "a vector lost: that says nothing of its quality; give more samples",
            name,
        )
    return result


def _quantize_checked(
    model: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    settings: QuantizeSettings,
    progress: Progress | None,
    clock: Clock | None,
    log: DecisionLog,
    judge: Judge | None,
) -> QuantizeResult:
    """Quantizes what `quantize_model` has checked."""
    if settings.weights == "int4" and len(samples) < FEW_SAMPLES:
        samples = [*pick_evenly(samples, len(samples)), *enlarge_quarters(samples)]
    settings = choose_int8_weights(model, samples, settings, progress)
    forms = Forms(settings) if clock is None else choose_forms(model, samples, settings, clock)
    work = Work.begin(model, samples, forms.chosen, progress, log)
    if settings.allowance is not None and clock is not None:
        allowance = replace(settings.allowance, spent=forms.slowdown)
        found = search_precision(work, allowance, clock, judge)
        if settings.contracts or not found.layers or not forms.richer:
            return found
        richer = (Work.begin(model, samples, item, progress, log) for item in forms.richer)
        return take_richer(found, work, allowance, richer, clock)
    decisions = work.decide(work.prepared)
    result = name_dominant(work, decisions, work.write(work.prepared, decisions))
    if clock is None:
        return result
    result = time_dominant(work, decisions, result, clock)
    if result.precision is None or result.precision.is_faster:
        return result
    _log.warning("INT8 is not faster than float here: what gains nothing from it stays in float")
    return search_precision(work, PREFERENCES["speed"], clock, judge)


def _warn_of_constants(samples: Sequence[dict[str, Array]]) -> None:
    """Says which inputs are one number in all samples, such as black pictures.

    Only as many samples are looked at as it takes to find another number.
    """
    for name, first in samples[0].items() if len(samples) else ():
        if first.size > 1 and all(np.all(sample[name] == first.flat[0]) for sample in samples):
            _log.warning(
                "input '%s' is %g everywhere in the calibration samples: ranges chosen on them "
                "mean nothing; give samples of the field",
                name,
                first.flat[0],
            )
