"""The work of `framefit export onnx` and `framefit export trt`."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import require_writable
from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.file_kind import require_file
from artifacts.onnx_inputs import parse_input_shapes
from artifacts.onnx_metadata import PARENT_KEY
from framefit.model_data import open_model_with_data
from framefit.model_source import ModelOptions
from framefit.spec_choice import choose_spec
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
) -> Path:
    """Exports a network's file to ONNX and records it in the workspace.

    Args:
        model: `.pt`, `.safetensors` or `.pt2`.
        out: the file to write; None for the model's name with `.onnx` in the current folder.
        model_options: how to open the model.
        spec_options: input spec values given by the user, see `choose_spec`; where nothing says
            them, no input spec is stored.

    Returns:
        the `.onnx` file.

    Raises:
        InputError: the model, an option or the output path is not usable.
    """
    target = require_writable(out or Path(f"{model.stem}.onnx"))
    if target.suffix != ".onnx":
        raise InputError(f"--out is {target}", "a file name that ends in .onnx")
    source = require_file(model, "a network (.pt, .safetensors or .pt2)")
    from export.network_file import open_network
    from export.to_onnx import export_onnx

    module, shapes, stored = open_network(source, model_options.for_module())
    spec, assumption = choose_spec(stored, Workspace().read_settings().input, spec_options)
    export_onnx(
        module,
        target,
        input_shape=shapes,
        input_spec=None if assumption else spec,
        metadata={PARENT_KEY: sha256_file(source)},
        notify=_log.warning,
    )
    Workspace().record_artifact(target, "float-onnx", "export onnx")
    return target


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
        raise InputError(
            f"{model} is no ONNX model", "an .onnx file", f"run: framefit export onnx {model}"
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
