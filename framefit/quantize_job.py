"""The work of `compress quantize`: a float model and pictures in, an INT8 model out."""

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import require_another_file, require_writable
from artifacts.decided_outputs import has_open_choices
from artifacts.errors import InputError
from artifacts.onnx_file import find_free_batches, save_onnx
from artifacts.onnx_metadata import (
    INPUT_SPEC_KEY,
    PARENT_KEY,
    SETTINGS_KEY,
    VERSIONS_KEY,
    read_metadata,
)
from framefit.model_data import open_model_with_data, warn_of_few
from framefit.model_source import ModelOptions, OpenedModel
from framefit.network_clock import NetworkClock
from framefit.quantize_choices import choose_clock, settle_forms
from framefit.quantize_outcome import QuantizeOutcome
from framefit.target_check import TargetCheck, check_on_target, warn_if_refused
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from onnx import ModelProto

    from artifacts.input_spec import InputSpec
    from artifacts.samples import Samples
    from compress.quantize.result import QuantizeResult
    from compress.quantize.search.contract import Judge
    from compress.quantize.settings import QuantizeSettings

Progress = Callable[[str, int, int], None]
_log = logging.getLogger(__name__)
_TOOLS = ("framefit", "onnx", "onnxruntime", "numpy")


def open_labels(model: "ModelProto", labels: str, spec: "InputSpec | None") -> "Judge":
    """Returns what measures each head's metric on labelled pictures.

    Raises:
        InputError: nothing says how pixels become the input, or the labels are not usable.
    """
    from framefit.metric_judge import open_judge

    if spec is None:
        raise InputError("--labels was given, and nothing says how pixels become the input")
    return open_judge(model, labels, spec)


def _digest_work(model_sha256: str, samples: "Samples", settings: "QuantizeSettings") -> str:
    """Returns what names a quantization: the same work has the same digest."""
    versions = {name: version(name) for name in _TOOLS}
    about = json.dumps([model_sha256, settings.to_dict(), versions], sort_keys=True)
    digest = sha256(about.encode())
    for index in range(len(samples)):
        for name, array in sorted(samples[index].items()):
            digest.update(name.encode())
            digest.update(array.tobytes())
    return digest.hexdigest()[:32]


def warn_of_computed_sizes(model: "ModelProto") -> None:
    """Names the nodes of a network of integers that OpenVINO may get wrong with a free batch."""
    from compress.free_batch import NAMED_AXES_OPSET, find_computed_sizes

    names = find_computed_sizes(model)
    if names:
        _log.warning(
            "%s: resized to sizes made of the free batch, which OpenVINO 2026.4 may miscompute in "
            "networks of integers; compile the file with a fixed batch, or export the network with "
            "opset %d or newer",
            ", ".join(names),
            NAMED_AXES_OPSET,
        )


def quantize_file(
    model: Path | None,
    data: str,
    settings: "QuantizeSettings",
    *,
    out: Path | None = None,
    samples: int | None = None,
    model_options: ModelOptions | None = None,
    spec_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    labels: str | None = None,
    is_timed: bool = True,
) -> QuantizeOutcome:
    """Quantizes a model's file and writes the INT8 model.

    Args:
        model: `.onnx`, `.pt`, `.safetensors` or `.pt2`; None for the newest float model of the
            workspace.
        data: calibration pictures, `.npz`, or a dataset's name in framefit.toml.
        settings: how to quantize.
        out: the file to write; None for the model's name with `.int8.onnx` (or `.int4.onnx`, the
            type that weights are stored in) in the current folder.
        samples: use at most this many.
        model_options: how to open the model.
        spec_options: input spec values given by the user, see `choose_spec`.
        progress: is told (what, done, total).
        labels: labelled pictures for contracts on metrics, see `framefit.metric_judge.FORMS`.
        is_timed: times the result beside the float network where the target runs here, and keeps
            in float what makes it slower than that one.

    Raises:
        InputError: the model, the data or the output path is not usable.
    """
    from compress.own_states import FramesWithStates, compare_own_states
    from compress.quantize.api import quantize_model
    from compress.quantize.decision_log import DecisionLog

    model = model or Workspace().find_artifact("float-onnx", "checkpoint")
    stored = "int4" if settings.weights == "int4" else "int8"
    out = require_writable(out or Path(f"{model.stem}.{stored}.onnx"))
    if out.suffix != ".onnx":
        raise InputError(f"--out is {out}", "a file name ending in .onnx")
    require_another_file(out, {"the float model": model})
    opened, spec, calibration = open_model_with_data(
        model,
        data,
        limit=samples,
        model_options=model_options,
        spec_options=spec_options,
        progress=progress,
    )
    warn_of_few(calibration)
    settings = settle_forms(settings)
    clock = choose_clock(settings, is_timed=is_timed)
    log_folder = Workspace().find_state(
        "quantize", _digest_work(opened.sha256, calibration, settings)
    )
    judge = open_labels(opened.model, labels, spec) if labels is not None else None
    with DecisionLog(log_folder) as log:
        result = quantize_model(opened.model, calibration, settings, progress, clock, log, judge)
        metadata = _describe(opened, spec, result.settings, len(calibration))
        free = find_free_batches(model) if model.suffix.lower() == ".onnx" else {}
        is_batch_given = bool(free and model_options is not None and model_options.input_shapes)
        freed = None
        if free and not is_batch_given:
            freed = _free_batch(result.model, free, calibration, settings.target)
        save_onnx(opened.finish(freed or result.model), out, metadata=metadata)
    if log_folder is not None:
        shutil.rmtree(log_folder, ignore_errors=True)
    Workspace().record_artifact(out, "int8-onnx", "compress quantize")
    check = _check(opened.model, result, calibration, clock, settings.target)
    own_states = {}
    if isinstance(calibration, FramesWithStates):
        own_states = compare_own_states(opened.model, result.model, calibration, progress)
    return QuantizeOutcome(
        out=out,
        source=model,
        result=result,
        target=settings.target,
        samples=len(calibration),
        float_bytes=opened.model.ByteSize(),
        int8_bytes=out.stat().st_size,
        check=check,
        own_states=own_states,
        has_free_batch=freed is not None if free and not is_batch_given else None,
        is_batch_given=is_batch_given,
    )


def _free_batch(
    model: "ModelProto", batches: Mapping[str, str], samples: "Samples", target: str
) -> "ModelProto | None":
    """Returns a quantized network that takes any batch; None where it cannot.

    Args:
        model: computes with one sample.
        batches: of `find_free_batches`.
        samples: to compare the two with.
        target: where it runs.
    """
    from compress.free_batch import free_batch

    freed = free_batch(model, batches, samples[:2])
    if freed is not None and target == "openvino":
        warn_of_computed_sizes(freed)
    return freed


def _check(
    model: "ModelProto",
    result: "QuantizeResult",
    samples: "Samples",
    clock: NetworkClock | None,
    target: str,
) -> TargetCheck | None:
    """Returns what the target computes with the result.

    None where it is not timed there, or where a network chooses more or fewer regions each time: a
    session has inputs of one size, and could not go on from those of the float network.
    """
    if not result.layers:
        return None
    if clock is None or has_open_choices(result.model):
        warn_if_refused(result.model, target)
        return None
    return check_on_target(
        *(model, result.model, samples, clock.runtime, result.measured_db),
        open_network=clock.open,
    )


def _describe(
    opened: OpenedModel, spec: "InputSpec | None", settings: "QuantizeSettings", samples: int
) -> dict[str, str]:
    """Returns the metadata of the quantized network: those it came with, and how it was made."""
    metadata = {
        **read_metadata(opened.model),
        SETTINGS_KEY: json.dumps({"quantize": settings.to_dict(), "calibration_samples": samples}),
        VERSIONS_KEY: json.dumps({name: version(name) for name in _TOOLS}),
        PARENT_KEY: opened.sha256,
    }
    if spec is not None:
        metadata[INPUT_SPEC_KEY] = spec.to_json()
    return metadata
