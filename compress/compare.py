"""How far a candidate network's outputs are from the reference's, per output."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from artifacts.decided_outputs import find_choices, find_measured, pair_choices, pin_choices
from artifacts.errors import InputError
from artifacts.output_parts import OutputPart
from compress.constant_outputs import describe_constant
from compress.model_runner import Runner, open_runner
from compress.progress import Progress
from compress.quantize.known_parts import read_known_parts
from compress.sqnr import EXACT_DB, SignalToNoise

Array = NDArray[Any]
Opener = Callable[[onnx.ModelProto, Sequence[str]], Runner]
_PICTURE_RANK, _MOST_COLORS = 3, 4


class OutputComparison:
    """Compares one output over samples.

    Agreement is the share of positions where both networks decide alike. A decision is the class
    with the largest value; classes are on axis 1, on the last one of a map [N, height, width,
    classes], and on the shorter one of the axes 1 and 2 of a tensor with three axes ([N, anchors,
    classes] or [N, classes, anchors]), unless it is a map [N, height, width]. Maps are known by the
    proportions of the picture. Where there is a single class, none, or a
    vector, it is the side of the reference's mean. Integers are decisions themselves.

    Args:
        ends: indices of samples that have a figure of their own, such as the last of sequences.
    """

    def __init__(self, ends: Collection[int] = ()) -> None:
        self._noise = SignalToNoise()
        self._ends, self._end_noise = ends, SignalToNoise()
        self._per_sample_db: list[float] = []
        self._agreeing = 0
        self._decisions = 0
        self._first: Array | None = None
        self._varies = False

    def update(
        self, reference: Array, candidate: Array, pictures: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Adds one sample; `pictures` are the heights and widths of the network's inputs."""
        alone = SignalToNoise()
        alone.update(reference, candidate)
        if len(self._per_sample_db) in self._ends:
            self._end_noise.add(alone)
        self._per_sample_db.append(alone.sqnr_db if reference.size else math.nan)
        self._noise.add(alone)
        alike = _find_alike(reference, candidate, pictures)
        self._agreeing += int(np.count_nonzero(alike))
        self._decisions += alike.size
        first = self._first = reference if self._first is None else self._first
        self._varies |= describe_constant((first, reference)) is None

    def result(self) -> dict[str, float]:
        """Returns the figures.

        sqnr_db pools all samples; sqnr_mean_db is the mean over samples, sqnr_worst_db the lowest
        and worst_sample its index, both without those that have no value (nothing was found);
        max_abs is the largest difference; agreement is 0 to 1; sqnr_end_db pools the samples with a
        figure of their own, where there are such; is_constant is there, and true, where no sample
        changed the reference.
        """
        known_db = np.array(self._per_sample_db)
        if np.isnan(known_db).all():
            known_db[:] = EXACT_DB
        worst = int(np.nanargmin(known_db))
        return {
            "sqnr_db": self._noise.sqnr_db,
            "sqnr_mean_db": float(np.nanmean(known_db)),
            "sqnr_worst_db": float(known_db[worst]),
            "worst_sample": worst,
            "max_abs": self._noise.max_abs,
            "agreement": self._agreeing / max(self._decisions, 1),
            **({"sqnr_end_db": self._end_noise.sqnr_db} if self._ends else {}),
            **({} if self._varies else {"is_constant": True}),
        }


class DecidedComparison:
    """Compares an output that is a decision, such as a map of labels or a list of boxes.

    Agreement is the share of equal integers; where it is none of integers, or of one shape only for
    one picture, it is that of the tensors that are decided about. All else is theirs anyway: of
    several, the one with the most noise.

    Args:
        parts: the comparisons of the tensors that are decided about.
    """

    def __init__(self, parts: Sequence[OutputComparison]) -> None:
        self._parts = parts
        self._equal: list[Array] = []
        self._is_exact = True

    def update(self, reference: Array, candidate: Array) -> None:
        """Adds one sample."""
        self._is_exact &= reference.dtype.kind in "biu" and reference.shape == candidate.shape
        if self._is_exact:
            self._equal.append(reference == candidate)

    def result(self) -> dict[str, float]:
        """Returns the figures of `OutputComparison.result`."""
        found = [part.result() for part in self._parts]
        agreement = min(item["agreement"] for item in found)
        if self._is_exact:
            agreement = float(np.mean(np.concatenate([item.reshape(-1) for item in self._equal])))
        return min(found, key=lambda item: item["sqnr_db"]) | {"agreement": agreement}


def _find_pictures(feeds: Mapping[str, Array]) -> list[tuple[int, int]]:
    """Returns heights and widths of inputs that may be pictures, channels in front or behind."""
    shapes = [value.shape for value in feeds.values() if value.ndim >= _PICTURE_RANK]
    behind = [shape[-3:-1] for shape in shapes if shape[-1] <= _MOST_COLORS]
    return [(shape[0], shape[1]) for shape in (*(shape[-2:] for shape in shapes), *behind)]


def _find_alike(
    reference: Array, candidate: Array, pictures: Sequence[tuple[int, int]]
) -> NDArray[np.bool_]:
    """Returns where both decide alike."""
    if reference.dtype.kind in "biu":
        return np.asarray(reference == candidate)
    axis = _find_classes(reference.shape, pictures)
    decisions = (_decide(values, reference, axis) for values in (reference, candidate))
    return np.equal(*decisions)


def _find_classes(shape: Sequence[int], pictures: Sequence[tuple[int, int]]) -> int | None:
    """Returns the axis of an output's classes; None where there are none."""
    if len(shape) == 3 and any(shape[1] * width == shape[2] * height for height, width in pictures):
        return None
    axis = 2 if len(shape) == 3 and shape[2] < shape[1] else 1
    if len(shape) == 4 and _is_map(shape[1:3], pictures) and not _is_map(shape[2:], pictures):
        axis = 3
    return axis if len(shape) >= 2 and shape[axis] > 1 else None


def _is_map(sizes: Sequence[int], pictures: Sequence[tuple[int, int]]) -> bool:
    """Whether two axes have the proportions of a picture, each up to one row or column."""
    return any(
        abs(sizes[0] * width - sizes[1] * height) <= max(height, width)
        for height, width in pictures
    )


def _decide(values: Array, reference: Array, axis: int | None) -> Array:
    return np.asarray(values > reference.mean() if axis is None else values.argmax(axis=axis))


def compare_outputs(
    reference: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    candidate: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    samples: Sequence[Mapping[str, Array]],
    progress: Progress | None = None,
    measured: Mapping[str, Sequence[str]] | None = None,
    parts: Sequence[OutputPart] = (),
    ends: Collection[int] = (),
) -> dict[str, dict[str, dict[str, float]]]:
    """Compares two networks, given as functions from inputs to outputs.

    Args:
        reference: the network that is right by definition.
        candidate: the network to judge.
        samples: one dictionary of input arrays per sample.
        progress: is told ("compare", samples done, samples in all).
        measured: for each output that is a decision, those outputs that it is decided about.
        parts: of outputs that join unlike tensors (boxes and scores).
        ends: indices of samples that have a figure of their own.

    Returns:
        {"outputs": {name: figures}, "parts": {name: figures}}, the figures of
        `OutputComparison.result`.

    Raises:
        InputError: there are no samples, or an output is missing or of another shape.
    """
    if len(samples) == 0:
        raise InputError("there are no samples to compare on", "at least 1")
    outputs: defaultdict[str, OutputComparison] = defaultdict(partial(OutputComparison, ends))
    split = {part.name: OutputComparison(ends) for part in parts}
    decided = {
        name: DecidedComparison([outputs[part] for part in parts])
        for name, parts in (measured or {}).items()
    }
    for done in range(len(samples)):
        if progress is not None:
            progress("compare", done, len(samples))
        expected, got = reference(samples[done]), candidate(samples[done])
        pictures = _find_pictures(samples[done])
        for name, value in expected.items():
            if name not in got:
                raise InputError(
                    f"the candidate has no output '{name}'", f"outputs {', '.join(expected)}"
                )
            if name in decided:
                decided[name].update(value, got[name])
                continue
            if got[name].shape != value.shape:
                raise InputError(
                    f"output '{name}' has shape {got[name].shape} in the candidate",
                    f"{value.shape} as in the reference",
                )
            outputs[name].update(value, got[name], pictures)
        for part in parts:
            split[part.name].update(part.take(expected[part.tensor]), part.take(got[part.tensor]))
    if progress is not None:
        progress("compare", len(samples), len(samples))
    return {
        "outputs": {name: item.result() for name, item in (outputs | decided).items()},
        "parts": {name: item.result() for name, item in split.items()},
    }


def compare_models(
    reference: onnx.ModelProto,
    candidate: onnx.ModelProto,
    samples: Sequence[Mapping[str, Array]],
    progress: Progress | None = None,
    open_candidate: Opener = open_runner,
    open_reference: Opener = open_runner,
    ends: Collection[int] = (),
) -> dict[str, dict[str, dict[str, float]]]:
    """Compares two ONNX models on onnxruntime, Q/DQ pairs computed as written.

    Where places are chosen and layers go on from them (the queries of RT-DETR, the regions of a
    detector in two stages), the candidate goes on from the reference's: near ties in another order
    are no errors of what follows. See `compare_outputs` for result and errors.

    Args:
        reference: the network that is right by definition.
        candidate: the network to judge.
        samples: one dictionary of input arrays per sample.
        progress: is told ("compare", samples done, samples in all).
        open_candidate: opens the candidate on another runtime, see `open_runner`.
        open_reference: the same for the reference.
        ends: indices of samples that have a figure of their own.
    """
    ours, theirs = find_measured(reference), find_measured(candidate)
    measured = {
        output: names for output, names in ours.items() if len(names) == len(theirs.get(output, ()))
    }
    twins = {
        name: twin
        for output, names in measured.items()
        for name, twin in zip(names, theirs[output], strict=True)
    }
    choices = pair_choices(find_choices(reference), candidate)
    run_candidate = open_candidate(
        pin_choices(candidate, tuple(choices.values())), tuple(twins.values())
    )
    run_whole = open_reference(reference, (*twins, *choices))
    chosen: dict[str, Array] = {}

    def run_reference(feeds: Mapping[str, Array]) -> dict[str, Array]:
        found = run_whole(feeds)
        chosen.update({twin: found[name] for name, twin in choices.items()})
        return {name: value for name, value in found.items() if name not in choices}

    def run_twin(feeds: Mapping[str, Array]) -> dict[str, Array]:
        got = run_candidate({**feeds, **chosen})
        return got | {name: got[twin] for name, twin in twins.items()}

    names = [item.name for item in reference.graph.output]
    plain = [name for name in (*names, *twins) if name not in measured]
    parts = read_known_parts(reference, list(dict.fromkeys(plain)))
    found = compare_outputs(run_reference, run_twin, samples, progress, measured, parts, ends)
    return {**found, "outputs": {name: found["outputs"][name] for name in names}}
