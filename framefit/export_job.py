"""The work of `framefit export onnx` and `framefit export trt`."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import require_writable
from artifacts.chosen_outputs import keep_outputs
from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.file_kind import MODULE_SUFFIXES, require_file
from artifacts.input_spec import InputSpec
from artifacts.onnx_file import save_onnx
from artifacts.onnx_inputs import input_tensors, parse_input_shapes
from artifacts.onnx_metadata import INPUT_SPEC_KEY, PARENT_KEY
from framefit.model_data import open_model_with_data
from framefit.model_source import ModelOptions, open_model
from framefit.spec_choice import choose_spec, count_channels
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from export.to_trt import PlanResult, PlanSettings

Progress = Callable[[str, int, int], None]
CHECK_SAMPLES = 4

_log = logging.getLogger(__name__)


def export_onnx_file(
    model: Path,
    out: Path | None,
    *,
    model_options: ModelOptions,
    spec_options: Mapping[str, Any],
    outputs: Sequence[str] = (),
) -> Path:
    """Exports a network's file to ONNX and records it in the workspace.

    Args:
        model: `.pt`, `.safetensors` or `.pt2`; an `.onnx` where `outputs` are given.
        out: the file to write; None for the model's name with `.onnx` (`.cut.onnx` where it is an
            `.onnx`) in the current folder.
        model_options: how to open the model.
        spec_options: input spec values given by the user, see `choose_spec`; where nothing says
            them, no input spec is stored.
        outputs: those that the file has; all without names. An `.onnx` may end at tensors inside.

    Returns:
        the `.onnx` file.

    Raises:
        InputError: the model, an option or the output path is not usable.
    """
    is_cut = model.suffix.lower() == ".onnx"
    if is_cut and not outputs:
        raise InputError(
            f"{model} is an .onnx already",
            "a network (.pt, .safetensors or .pt2)",
            "to cut outputs off, name those to keep with --output",
        )
    target = require_writable(out or Path(f"{model.stem}{'.cut' if is_cut else ''}.onnx"))
    if target.suffix != ".onnx":
        raise InputError(f"--out is {target}", "a file name that ends in .onnx")
    source = require_file(model, "a network (.pt, .safetensors or .pt2)")
    parent = {PARENT_KEY: sha256_file(source)}
    kind = "float-onnx"
    if is_cut:
        kind = _cut_onnx(source, target, model_options, spec_options, outputs, parent)
    else:
        from export.network_file import open_network
        from export.to_onnx import export_onnx

        module, shapes, stored = open_network(source, model_options.for_module())
        export_onnx(
            module,
            target,
            input_shape=shapes,
            input_spec=_find_spec(stored, spec_options, shapes),
            metadata=parent,
            outputs=outputs,
            notify=_log.warning,
        )
    Workspace().record_artifact(target, kind, "export onnx")
    return target


def _find_spec(
    stored: InputSpec | None,
    spec_options: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
) -> InputSpec | None:
    """Returns the input spec that a file or the user states, for inputs of these shapes."""
    spec, assumption = choose_spec(
        stored, Workspace().read_settings().input, spec_options, channels=count_channels(shapes)
    )
    return None if assumption else spec


def _cut_onnx(
    source: Path,
    target: Path,
    model_options: ModelOptions,
    spec_options: Mapping[str, Any],
    outputs: Sequence[str],
    metadata: Mapping[str, str],
) -> str:
    """Writes the part of an `.onnx` that its outputs, or tensors inside, need; returns its kind."""
    if target.resolve() == source.resolve():
        raise InputError(f"--out is {target}, the network itself", "another file")
    opened = open_model(source, model_options)
    keep_outputs(opened.model, outputs)
    shapes = {name: item.shape for name, item in input_tensors(opened.model).items()}
    spec = _find_spec(opened.spec, spec_options, shapes)
    stated = {} if spec is None else {INPUT_SPEC_KEY: spec.to_json()}
    save_onnx(opened.model, target, metadata={**stated, **metadata})
    is_quantized = any(node.op_type == "DequantizeLinear" for node in opened.model.graph.node)
    return "int8-onnx" if is_quantized else "float-onnx"


def export_plan(
    model: Path | None,
    out: Path | None,
    settings: "PlanSettings",
    *,
    data: str | None = None,
    input_shapes: tuple[str, ...] = (),
    spec_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> "PlanResult":
    """Builds a plan of a model and records it in the workspace.

    Args:
        model: the `.onnx`; None for the newest fitting one of the workspace.
        out: the `.plan` to write; None for the model's name with `.plan` in the current folder.
        settings: precision, GPUs, flavour.
        data: samples on which FP16 is checked; None takes random input.
        input_shapes: `--input-shape` options.
        spec_options: input spec values given by the user, for `data`.
        progress: told (what, done, total).

    Raises:
        InputError: the model, the data or an option is not usable, or TensorRT refuses the model.
        UnavailableError: TensorRT is missing or does not work here.
    """
    from export.to_trt import build_plans

    if model is None:
        kinds = ("int8-onnx",) if settings.int8 else ("int8-onnx", "float-onnx")
        model = Workspace().find_artifact(*kinds)
    if model.suffix.lower() != ".onnx":
        is_module = model.suffix.lower() in MODULE_SUFFIXES
        raise InputError(
            f"{model} is no ONNX model",
            "an .onnx file",
            f"run: framefit export onnx {model}" if is_module else "",
        )
    target = require_writable(out or Path(f"{model.stem}.plan"))
    samples: Any = ()
    if data is not None:
        _, _, samples = open_model_with_data(
            model,
            data,
            limit=CHECK_SAMPLES,
            model_options=ModelOptions(input_shapes),
            spec_options=spec_options,
            takes_states=False,
        )
    (result,) = build_plans(
        model,
        target,
        settings=settings,
        samples=samples,
        input_shapes=parse_input_shapes(input_shapes),
        progress=progress,
    )
    Workspace().record_artifact(result.path, "plan", "export trt")
    return result
