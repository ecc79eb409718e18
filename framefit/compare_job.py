"""The work of `compress compare`."""

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError
from artifacts.onnx_inputs import input_tensors
from artifacts.onnx_metadata import HEADS_KEY, read_metadata
from artifacts.output_parts import find_hidden
from framefit.model_data import open_model_with_data
from framefit.model_source import ModelOptions, OpenedModel, open_model

if TYPE_CHECKING:
    import onnx

Progress = Callable[[str, int, int], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OutputDifference:
    """How far one output of the candidate, or a part of one, is from the reference's.

    Attributes:
        name: of the output or part.
        head: that it belongs to; "" where the model does not say.
        figures: sqnr_db (all samples pooled), sqnr_mean_db, sqnr_worst_db, max_abs, agreement
            (share of equal decisions, 0 to 1), is_constant where no sample changes it; see
            `compress.compare.OutputComparison`. Of networks with states also own_states_db and
            own_states_end_db, see `compress.own_states`.
        worst_sample: name of the sample with the lowest SQNR.
    """

    name: str
    head: str
    figures: dict[str, float]
    worst_sample: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures, those that are no number as None."""
        finite = {
            name: value if math.isfinite(value) else None for name, value in self.figures.items()
        }
        return {**finite, "worst_sample": self.worst_sample}


@dataclass(frozen=True, kw_only=True)
class ComparisonOutcome:
    """What `compare_files` found.

    Attributes:
        outputs: one entry per output.
        parts: one entry per part of an output that joins unlike tensors (boxes and scores).
        samples: number of samples compared on.
    """

    outputs: tuple[OutputDifference, ...]
    parts: tuple[OutputDifference, ...]
    samples: int

    def to_dict(self) -> dict[str, Any]:
        """Returns `{"outputs": {NAME: {"sqnr_db", "max_abs", "agreement", …}}, …}`."""
        return {
            "outputs": {item.name: item.to_dict() for item in self.outputs},
            "parts": {item.name: item.to_dict() for item in self.parts},
            "samples": self.samples,
        }

    @property
    def shown(self) -> tuple[OutputDifference, ...]:
        """The outputs, and the parts of which these say nothing."""
        outputs_db, parts_db = (
            {item.name: item.figures["sqnr_db"] for item in items}
            for items in (self.outputs, self.parts)
        )
        hidden = find_hidden(outputs_db, parts_db)
        return (*self.outputs, *(item for item in self.parts if item.name in hidden))


def compare_files(
    reference: Path,
    candidate: Path,
    data: str,
    *,
    samples: int | None = None,
    model_options: ModelOptions | None = None,
    spec_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> ComparisonOutcome:
    """Compares two models' files on the same samples, both run by onnxruntime.

    Networks with states begin each sample with the reference's, and then run whole sequences, each
    with its own.

    Raises:
        InputError: a file or the data is not usable, or the two networks do not fit together.
    """
    from compress.compare import compare_models
    from compress.constant_outputs import warn_of_constant
    from compress.own_states import FramesWithStates, compare_own_states

    options = replace(model_options or ModelOptions(), data=data)
    left, opened = _open_candidate(reference, candidate, options)
    right, spec, data_samples = open_model_with_data(
        reference,
        data,
        limit=samples,
        model_options=replace(options, twin_shapes=left.sample_shapes),
        spec_options=spec_options,
        related_spec=left.spec,
        opened=opened,
        progress=progress,
    )
    _name_input_alike(right, left)
    _refuse_other_inputs(right, left)
    if left.spec is not None and spec is not None and left.spec != spec:
        raise InputError(
            f"{candidate} has the input spec {left.spec.to_json()}",
            f"{spec.to_json()} as {reference} has",
            "quantize it again from this reference",
        )
    found = compare_models(right.model, left.model, data_samples, progress)
    for name, figures in found["outputs"].items():
        if "is_constant" in figures:
            _log.warning("%s", warn_of_constant(f"output '{name}'", "constant", "given"))
    own: Mapping[str, Mapping[str, float]] = {}
    if isinstance(data_samples, FramesWithStates):
        own = compare_own_states(right.model, left.model, data_samples, progress)
    heads = _heads_by_output(right.model)
    outputs, parts = (
        tuple(
            OutputDifference(
                name=name,
                head=heads.get(name.partition("[")[0], ""),
                figures={key: value for key, value in figures.items() if key != "worst_sample"}
                | dict(own.get(name, {})),
                worst_sample=data_samples.names[int(figures["worst_sample"])],
            )
            for name, figures in found[kind].items()
        )
        for kind in ("outputs", "parts")
    )
    return ComparisonOutcome(outputs=outputs, parts=parts, samples=len(data_samples))


def _is_onnx(path: Path) -> bool:
    return path.suffix.lower() == ".onnx"


def _open_candidate(
    reference: Path, candidate: Path, options: ModelOptions
) -> tuple[OpenedModel, OpenedModel | None]:
    """Opens the candidate, and before it a reference whose shapes its weights may take."""
    plain = ModelOptions(options.input_shapes, data=options.data)
    if _is_onnx(candidate):
        return open_model(candidate, plain), None
    if not _is_onnx(reference):
        return open_model(candidate, options), None
    opened = open_model(reference, plain)
    return open_model(candidate, replace(options, twin_shapes=opened.sample_shapes)), opened


def _name_input_alike(right: OpenedModel, left: OpenedModel) -> None:
    """Calls the candidate's only input as the reference's is called, where they are alike.

    A module's argument and an export by hand call the same input differently.
    """
    from onnx import helper

    ours, theirs = input_tensors(right.model), input_tensors(left.model)
    if len(ours) != 1 or list(ours.values()) != list(theirs.values()) or ours == theirs:
        return
    (name,), (old,), graph = ours, theirs, left.model.graph
    if any(name in (*node.input, *node.output) for node in graph.node):
        return
    next(item for item in graph.input if item.name == old).name = name
    graph.node.insert(0, helper.make_node("Identity", [name], [old], f"{name}/{old}"))


def _refuse_other_inputs(right: OpenedModel, left: OpenedModel) -> None:
    ours, theirs = input_tensors(right.model), input_tensors(left.model)
    if ours != theirs:
        shown = [
            ", ".join(f"{name} {list(item.shape)} {item.dtype}" for name, item in inputs.items())
            for inputs in (theirs, ours)
        ]
        raise InputError(f"{left.path} has the inputs {shown[0]}", f"{shown[1]} as {right.path}")


def _heads_by_output(model: "onnx.ModelProto") -> dict[str, str]:
    """Returns the head that each output belongs to, from the model's metadata."""
    try:
        heads = json.loads(read_metadata(model).get(HEADS_KEY, "{}"))
        return {output: head for head, entry in heads.items() for output in entry["outputs"]}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
