"""The work of `compress diagnose`: a float model and pictures in, a diagnosis out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import require_writable, write_json, write_text
from framefit.model_data import open_model_with_data, warn_of_few
from framefit.model_source import ModelOptions
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from compress.diagnose import Diagnosis
    from compress.quantize.settings import QuantizeSettings

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class DiagnoseOutputs:
    """Files to write besides what the terminal shows.

    Attributes:
        json: the diagnosis as plain values.
        html: the diagnosis as a page.
    """

    json: Path | None = None
    html: Path | None = None

    def __post_init__(self) -> None:
        for path in (self.json, self.html):
            if path is not None:
                require_writable(path)


def diagnose_file(
    model: Path | None,
    data: str,
    settings: "QuantizeSettings",
    outputs: DiagnoseOutputs,
    *,
    keeps_target: bool = False,
    samples: int | None = None,
    model_options: ModelOptions | None = None,
    spec_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> "Diagnosis":
    """Diagnoses a model's file and writes what `outputs` names.

    Args:
        model: `.onnx`, `.pt`, `.safetensors` or `.pt2`, in float; None for the newest float model
            of the workspace.
        data: calibration pictures, `.npz`, or a dataset's name in framefit.toml.
        settings: how it would be quantized.
        outputs: the files.
        keeps_target: no other runtime is proposed.
        samples: use at most this many.
        model_options: how to open the model.
        spec_options: input spec values given by the user, see `choose_spec`.
        progress: is told (what, done, total).

    Raises:
        InputError: the model or the data is not usable.
    """
    from compress.diagnose import diagnose_model
    from compress.diagnose.html import render_html

    model = model or Workspace().find_artifact("float-onnx", "checkpoint")
    opened, _, calibration = open_model_with_data(
        model, data, limit=samples, model_options=model_options, spec_options=spec_options
    )
    warn_of_few(calibration)
    diagnosis = diagnose_model(
        opened.model, calibration, settings, progress, keeps_target=keeps_target
    )
    if outputs.json is not None:
        write_json(outputs.json, {"model": str(model)} | diagnosis.to_dict())
    if outputs.html is not None:
        write_text(outputs.html, render_html(diagnosis, model.name))
    return diagnosis
