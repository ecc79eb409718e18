"""A PyTorch module becomes a checked, self-contained ONNX file."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifacts.byte_inputs import BYTE_INPUTS_KEY
from artifacts.chosen_outputs import keep_outputs, require_names
from artifacts.errors import InputError, first_line
from artifacts.input_spec import InputSpec
from artifacts.module_inputs import find_byte_inputs
from artifacts.module_run import (
    evaluation_mode,
    explain_failure,
    is_about_shapes,
    kept_buffers,
)
from artifacts.onnx_file import save_onnx
from artifacts.onnx_metadata import HEADS_KEY, read_metadata
from artifacts.synthetic_pictures import draw_input, draw_prepared, has_colors
from export.export_answers import answers_otherwise, as_in_export
from export.exporters import EXPORTERS, export_with
from export.outputs import flatten_outputs
from export.own_rounding import measure_own_rounding
from export.parity import check_parity
from export.same_choices import Choice, record_choices, run_at_choices

INPUT_NAME = "input"
_SEED = 0
_PARITY_SAMPLES = 2
_CHOSEN = "values that a TopK chose"
OWN_ROUNDINGS = 4
"""An export may be off by this many times what rounding alone does to the module's outputs."""

Arrays = dict[str, NDArray[Any]]


class _ReturnsTuple(nn.Module):
    """The module with its return value flattened, as exporters name outputs by position."""

    def __init__(self, module: nn.Module, order: tuple[str, ...]) -> None:
        super().__init__()
        self.module = module
        self.order = order
        self.training = False

    def train(self, mode: bool = True) -> Self:
        """Leaves the mode alone: an exporter that sets it and sets it back would set every part."""
        del mode
        return self

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Returns the tensors in the order of `flatten_outputs`."""
        return tuple(tensor for _, tensor in flatten_outputs(self.module(*inputs), self.order))


def export_onnx(
    module: nn.Module,
    path: Path | str,
    *,
    input_shape: tuple[int, ...] | Mapping[str, tuple[int, ...]],
    input_spec: InputSpec | None = None,
    integers: Mapping[str, NDArray[Any]] | None = None,
    heads: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
    outputs: Sequence[str] = (),
    exporters: tuple[str, ...] = tuple(EXPORTERS),
    notify: Callable[[str], None] | None = None,
) -> Path:
    """Exports a module for deployment: static shapes, named outputs, verified numerically.

    The module is put into evaluation mode for the export and given back as it was. Outputs are
    named by `flatten_outputs`; a module's own `output_names` fix their order. The exporters are
    tried in turn; each result is run by onnxruntime on seeded random pictures, prepared as the spec
    says, and has to give the module's own outputs within `export.parity.TOLERANCES` and
    `OWN_ROUNDINGS`.

    Args:
        module: the network; float32, on any device.
        path: the `.onnx` file to write, atomically.
        input_shape: [N, C, H, W] of the one input (named `input`), or a shape per input by name in
            the order of the module's arguments.
        input_spec: how pixels become the input; stored in the file.
        integers: values of the inputs that are integers (bytes of a picture, indices), by name;
            all others are float32.
        heads: what each head's outputs are; left out, the module's own `heads_metadata`.
        metadata: further `framefit.*` entries for the file.
        outputs: names of those that the file has, in this order; all without names.
        exporters: keys of `EXPORTERS`, first choice first.
        notify: told in one line why the first choice was not taken.

    Returns:
        `path`.

    Raises:
        InputError: the module cannot be run with that shape or has no such output, no exporter
            takes it, or no export gives the module's own outputs.
    """
    shapes = dict(input_shape) if isinstance(input_shape, Mapping) else {INPUT_NAME: input_shape}
    _check_shapes(shapes)
    order = tuple(getattr(module, "output_names", None) or ())
    spec = input_spec or InputSpec()
    samples = [
        _sample(module, shapes, spec, integers or {}, _SEED + index)
        for index in range(_PARITY_SAMPLES)
    ]
    with (
        evaluation_mode(module),
        kept_buffers(module),
        torch.no_grad(),
        _answering(module, samples[0], order, notify),
    ):
        wanted = [_run_module(module, sample, order) for sample in samples]
        require_names(outputs, list(wanted[0]), "output of the module")

        @functools.cache
        def allow_own_rounding() -> dict[str, float]:
            errors = measure_own_rounding(module, samples, wanted, order)
            return {name: OWN_ROUNDINGS * error for name, error in errors.items()}

        wrapped = _ReturnsTuple(module, order)
        refusals: list[str] = []
        for exporter in exporters:
            try:
                model = export_with(
                    exporter, wrapped, list(samples[0].values()), list(shapes), list(wanted[0])
                )
                errors = verify_export(
                    model, samples, wanted, allow_own_rounding, lambda x: record_choices(module, x)
                )
                break
            except InputError as error:
                refusals.append(error.what)
                if notify is not None:
                    notify(error.what)
        else:
            raise InputError(
                f"the module cannot be exported: {'; '.join(refusals)}",
                "a module of operators that ONNX has, without data-dependent control flow, and "
                "outputs of fixed shapes that do not hang on the rounding of float32; where a "
                "detector selects boxes, wrap it in a module that returns what it selects from",
            )
        in_bytes = find_byte_inputs(module, shapes)
    errors = {name: errors[name] for name in outputs or errors}
    entries = _describe(exporter, refusals, errors, input_spec)
    if in_bytes:
        entries[BYTE_INPUTS_KEY] = json.dumps(sorted(in_bytes))
    found_heads = heads if heads is not None else getattr(module, "heads_metadata", None)
    if found_heads:
        entries[HEADS_KEY] = json.dumps(found_heads)
    onnx.helper.set_model_props(model, {**read_metadata(model), **entries})
    if outputs:
        keep_outputs(model, outputs)
    save_onnx(model, Path(path), metadata=dict(metadata or {}))
    return Path(path)


def verify_export(
    model: onnx.ModelProto,
    samples: list[dict[str, Tensor]],
    wanted: list[Arrays],
    allow_more: Callable[[], Mapping[str, float]] = dict,
    choose: Callable[[dict[str, Tensor]], list[Choice]] = lambda sample: [],
) -> dict[str, float]:
    """Proves that an exported model is valid and computes what the module computes.

    Args:
        model: the export.
        samples: inputs by name.
        wanted: the module's outputs on each of them.
        allow_more: as for `check_parity`.
        choose: returns what the module chooses on a sample; it is asked where outputs differ, which
            are then compared with the same places chosen.

    Returns:
        the largest absolute error of each output.

    Raises:
        InputError: the checker or onnxruntime refuses the model, a shape is dynamic, or an output
            is off by more than float32's tolerance and its allowance.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise InputError(f"the exported model is not valid: {error}") from error
    for value in (*session.get_inputs(), *session.get_outputs()):
        if not all(isinstance(dim, int) for dim in value.shape):
            sizes = ", ".join(str(dim) if isinstance(dim, int) else "?" for dim in value.shape)
            raise InputError(
                f"the exported model's '{value.name}' has the shape [{sizes}], "
                "which the data decide"
            )
    names = [value.name for value in session.get_outputs()]
    worst: dict[str, float] = dict.fromkeys(names, 0.0)
    for sample, reference in zip(samples, wanted, strict=True):
        feeds = {value.name: sample[value.name].cpu().numpy() for value in session.get_inputs()}
        got = dict(zip(names, session.run(None, feeds), strict=True))
        try:
            errors = _judge(reference, got, allow_more)
        except InputError:
            errors = _judge_at_choices(model, feeds, choose(sample), reference, allow_more)
            if not errors:
                raise
        worst = {name: max(worst[name], errors[name]) for name in names}
    return worst


def _judge(
    reference: Arrays, got: Arrays, allow_more: Callable[[], Mapping[str, float]]
) -> dict[str, float]:
    return check_parity(
        reference, got, dtype="float32", what="the exported model", allow_more=allow_more
    )


def _judge_at_choices(
    model: onnx.ModelProto,
    feeds: Arrays,
    choices: list[Choice],
    reference: Arrays,
    allow_more: Callable[[], Mapping[str, float]],
) -> dict[str, float]:
    """Returns the errors where the export goes on from the module's choices; {} if it cannot.

    What it would have chosen itself has to have the same values: then only near ties differ.
    """
    found = run_at_choices(model, feeds, choices)
    if found is None:
        return {}
    outputs, chosen = found
    for (values, _), own in zip(choices, chosen, strict=True):
        _judge({_CHOSEN: values}, {_CHOSEN: own}, allow_more)
    return _judge(reference, outputs, allow_more)


def _check_shapes(shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if not shape or any(not isinstance(dim, int) or dim < 1 for dim in shape):
            raise InputError(
                f"input shape {list(shape)} of '{name}'",
                "whole numbers above 0, such as 1,3,288,512",
            )


@contextmanager
def _answering(
    module: nn.Module,
    sample: Mapping[str, Tensor],
    order: tuple[str, ...],
    notify: Callable[[str], None] | None,
) -> Iterator[None]:
    """Lets the module answer in the block as it answers in an export."""
    if not answers_otherwise(module, list(sample.values()), order):
        yield
        return
    if notify is not None:
        notify("the network has other outputs in an export; the file has those")
    with as_in_export():
        yield


def _sample(
    module: nn.Module,
    shapes: Mapping[str, tuple[int, ...]],
    spec: InputSpec,
    integers: Mapping[str, NDArray[Any]],
    seed: int,
) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    weight = next(module.parameters(), torch.zeros(()))
    arrays = {
        name: integers[name] if name in integers else _draw(shape, rng, spec)
        for name, shape in shapes.items()
    }
    return {name: torch.from_numpy(array).to(weight.device) for name, array in arrays.items()}


def _draw(shape: tuple[int, ...], rng: np.random.Generator, spec: InputSpec) -> NDArray[np.float32]:
    """Returns a picture as the spec prepares it: far from those, networks amplify rounding."""
    if has_colors(shape, spec):
        return draw_prepared(shape, rng, spec).astype(np.float32)
    return draw_input(shape, rng)


def _run_module(module: nn.Module, sample: dict[str, Tensor], order: tuple[str, ...]) -> Arrays:
    given = tuple(sample.values())
    try:
        with kept_buffers(module):
            result = module(*given)
    except Exception as error:
        if not is_about_shapes(error):
            raise explain_failure(error, given) from error
        shapes = {name: list(tensor.shape) for name, tensor in sample.items()}
        raise InputError(
            f"the module cannot run with the input shape {shapes}: {first_line(error)}",
            "the shape it was trained with",
            "give it with --input-shape",
        ) from error
    named = flatten_outputs(result, order)
    outputs = {name: np.array(tensor.cpu().numpy()) for name, tensor in named}
    for name, array in outputs.items():
        if not np.isfinite(array).all():
            raise InputError(f"the module's output '{name}' is not finite", "finite weights")
    return outputs


def _describe(
    exporter: str, refusals: list[str], errors: dict[str, float], spec: InputSpec | None
) -> dict[str, str]:
    settings = {"exporter": exporter, "refusals": refusals, "parity_max_abs": errors}
    versions = {"torch": str(torch.__version__), "onnx": onnx.__version__}
    entries = {"framefit.settings": json.dumps(settings), "framefit.versions": json.dumps(versions)}
    if spec is not None:
        entries["framefit.input_spec"] = spec.to_json()
    return entries
