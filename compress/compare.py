"""How far a candidate network's outputs are from the reference's, per output."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from artifacts.errors import InputError
from compress.sqnr import SignalToNoise

BIAS_QUANTIZATION = "WeightBiasQuantization"
"""An onnxruntime optimization that rounds float biases of Q/DQ networks; neither file says so."""

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]


class OutputComparison:
    """Compares one output over samples.

    Agreement is the share of positions where both networks decide alike. A decision is the
    channel (axis 1) with the largest value where there are several; a single channel, or a vector,
    decides by its sign about the reference's mean.
    """

    def __init__(self) -> None:
        self._noise = SignalToNoise()
        self._agreeing = 0
        self._decisions = 0

    def update(self, reference: Array, candidate: Array) -> None:
        """Adds one sample."""
        self._noise.update(reference, candidate)
        alike = _decide(reference, reference) == _decide(candidate, reference)
        self._agreeing += int(np.count_nonzero(alike))
        self._decisions += alike.size

    def result(self) -> dict[str, float]:
        """Returns sqnr_db, max_abs and agreement (0 to 1)."""
        return {
            "sqnr_db": self._noise.sqnr_db,
            "max_abs": self._noise.max_abs,
            "agreement": self._agreeing / max(self._decisions, 1),
        }


def _decide(values: Array, reference: Array) -> Array:
    if values.ndim >= 2 and values.shape[1] > 1:
        return np.asarray(values.argmax(axis=1))
    return np.asarray(values > reference.mean())


def compare_outputs(
    reference: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    candidate: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    samples: Sequence[Mapping[str, Array]],
    progress: Progress | None = None,
) -> dict[str, dict[str, dict[str, float]]]:
    """Compares two networks, given as functions from inputs to outputs.

    Args:
        reference: the network that is right by definition.
        candidate: the network to judge.
        samples: one dictionary of input arrays per sample.
        progress: is told ("compare", samples done, samples in all).

    Returns:
        {"outputs": {name: {"sqnr_db", "max_abs", "agreement"}}}

    Raises:
        InputError: there are no samples, or an output is missing or of another shape.
    """
    if len(samples) == 0:
        raise InputError("there are no samples to compare on", "at least 1")
    outputs: dict[str, OutputComparison] = {}
    for done in range(len(samples)):
        if progress is not None:
            progress("compare", done, len(samples))
        expected, got = reference(samples[done]), candidate(samples[done])
        for name, value in expected.items():
            if name not in got:
                raise InputError(
                    f"the candidate has no output '{name}'", f"outputs {', '.join(expected)}"
                )
            if got[name].shape != value.shape:
                raise InputError(
                    f"output '{name}' has shape {got[name].shape} in the candidate",
                    f"{value.shape} as in the reference",
                )
            outputs.setdefault(name, OutputComparison()).update(value, got[name])
    if progress is not None:
        progress("compare", len(samples), len(samples))
    return {"outputs": {name: comparison.result() for name, comparison in outputs.items()}}


def compare_models(
    reference: onnx.ModelProto,
    candidate: onnx.ModelProto,
    samples: Sequence[Mapping[str, Array]],
    progress: Progress | None = None,
) -> dict[str, dict[str, dict[str, float]]]:
    """Compares two ONNX models on onnxruntime, Q/DQ pairs computed as written.

    See `compare_outputs` for arguments, result and errors.
    """
    return compare_outputs(_runner(reference), _runner(candidate), samples, progress)


def _runner(model: onnx.ModelProto) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = ort.InferenceSession(
        model.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=[BIAS_QUANTIZATION],
    )
    names = [item.name for item in session.get_outputs()]
    wanted = {item.name for item in session.get_inputs()}

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        missing = wanted - set(feeds)
        if missing:
            raise InputError(f"the samples have no input '{min(missing)}'")
        values = session.run(names, {name: feeds[name] for name in wanted})
        return dict(zip(names, values, strict=True))

    return run
