"""Opens a model together with its data: one input spec for both."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from artifacts.errors import InputError, MissingInputsError
from artifacts.input_spec import InputSpec
from artifacts.npz_samples import NpzSamples
from artifacts.onnx_inputs import input_tensors
from artifacts.recurrence import Recurrence
from artifacts.samples import Samples, open_samples
from framefit.foreign_pixels import measure_first_layers, warn_of_foreign_pixels
from framefit.model_source import ModelOptions, OpenedModel, open_model
from framefit.spec_choice import choose_spec, count_channels
from framefit.training_samples import warn_of_arrays
from framefit.workspace import Workspace

Progress = Callable[[str, int, int], None]
_log = logging.getLogger(__name__)
FEWEST = 4
"""Ranges of fewer samples fit these and little else."""


def open_model_with_data(
    path: Path,
    data: str,
    *,
    limit: int | None,
    model_options: ModelOptions | None = None,
    spec_options: Mapping[str, Any] | None = None,
    related_spec: InputSpec | None = None,
    opened: OpenedModel | None = None,
    progress: Progress | None = None,
    takes_states: bool = True,
) -> tuple[OpenedModel, InputSpec | None, Samples]:
    """Opens a model and samples for it; logs a warning where the input spec is assumed.

    Args:
        path: the model's file.
        data: pictures, an `.npz`, or the name of a dataset in framefit.toml.
        limit: use at most this many samples.
        model_options: how to open the model. Where it has states, the data are frames in order, and
            the samples get the states that it computes (`compress.own_states.FramesWithStates`).
        spec_options: input spec values given by the user; None or missing where not given.
        related_spec: what a file made from the model says, for a model that does not say itself.
        opened: the model, where it is open already.
        progress: is told how many frames are run for that.
        takes_states: the command has the option `--state`, which an error may then name.

    Returns:
        the model; the input spec to store with what is made of it (None where nothing is known);
        and the samples.

    Raises:
        InputError: the model or the data is not usable, or the input specs contradict each other.
    """
    workspace = Workspace()
    data_path = workspace.find_dataset(data)
    opened = opened or open_model(path, replace(model_options or ModelOptions(), data=data))
    recurrence = model_options.recurrence if model_options is not None else None
    inputs = input_tensors(opened.model)
    states = recurrence.states if recurrence is not None else ()
    pictures = {name: item.shape for name, item in inputs.items() if name not in states}
    spec, warning = choose_spec(
        opened.spec or related_spec,
        workspace.read_settings().input,
        spec_options or {},
        channels=count_channels(pictures),
    )
    try:
        samples = _open_frames(opened, data_path, spec, limit, recurrence, progress)
    except MissingInputsError as error:
        raise (_with_states_named(error, opened.model) if takes_states else error) from error
    if isinstance(samples, NpzSamples):
        known = None if warning else spec
        measure = partial(measure_first_layers, opened.model)
        warn_of_foreign_pixels(samples, data_path.name, known, measure)
    if not warning:
        return opened, spec, samples
    if data_path.suffix.lower() == ".npz":
        return opened, None, samples
    _log.warning(warning)
    return opened, spec, samples


def warn_of_few(samples: Samples) -> None:
    """Warns of calibration data that are too few to say what the network sees."""
    if len(samples) < FEWEST:
        _log.warning(
            "few calibration samples (%d): ranges fit them and may clip what others hold; give 16 "
            "to 64 like those that the camera sees",
            len(samples),
        )


def _open_frames(
    opened: OpenedModel,
    data: Path,
    spec: InputSpec,
    limit: int | None,
    recurrence: Recurrence | None,
    progress: Progress | None,
) -> Samples:
    inputs = input_tensors(opened.model)
    if recurrence is None:
        samples = open_samples(data, inputs, spec, limit=limit)
        if isinstance(samples, NpzSamples):
            warn_of_arrays(samples, data.name)
        return samples
    from compress.own_states import FramesWithStates

    recurrence.require_in(opened.model)
    frames = open_samples(data, inputs, spec, optional=recurrence.states)
    return FramesWithStates(opened.model, frames, recurrence, limit=limit, progress=progress)


def _with_states_named(error: MissingInputsError, model: onnx.ModelProto) -> InputError:
    """Returns the error with the `--state` options that make up for the inputs without data."""
    inputs = input_tensors(model)
    states: dict[str, str] = {}
    for name in error.missing:
        output = _find_next_state(model, name, states.values())
        if output is not None:
            states[name] = output
    if not states or len(error.missing) == len(inputs):
        return error
    return error.naming_states(states)


def _find_next_state(model: onnx.ModelProto, name: str, taken: Collection[str]) -> str | None:
    """Returns the output that looks most like an input's next state: its shape, and a like name.

    What the file does not say of an output's shape may be the state's. None is that of two states.
    """
    like = next(item for item in model.graph.input if item.name == name)
    outputs = [item.name for item in model.graph.output if _may_follow(item, like)]
    left = [output for output in outputs if output not in taken]
    return max(left, key=lambda out: SequenceMatcher(None, name, out).ratio(), default=None)


def _may_follow(output: onnx.ValueInfoProto, state: onnx.ValueInfoProto) -> bool:
    result, wanted = output.type.tensor_type, state.type.tensor_type
    if result.elem_type != wanted.elem_type:
        return False
    sizes = zip(result.shape.dim, wanted.shape.dim, strict=False)
    return not result.HasField("shape") or (
        len(result.shape.dim) == len(wanted.shape.dim)
        and all(one == other or not one.HasField("dim_value") for one, other in sizes)
    )
