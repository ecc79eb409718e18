"""The work of `compress quantize`: a float model and pictures in, an INT8 model out."""

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import require_another_file, require_writable
from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.onnx_file import find_free_batches, save_onnx
from artifacts.onnx_metadata import (
    INPUT_SPEC_KEY,
    PARENT_KEY,
    SETTINGS_KEY,
    VERSIONS_KEY,
    read_metadata,
)
from artifacts.processor import (
    PAIRED_SUMS,
    fuses_silu_best,
    overflows_on_int8,
    read_flags,
    takes_zero_points_free,
)
from framefit.model_data import open_model_with_data, warn_of_few
from framefit.model_source import ModelOptions, OpenedModel
from framefit.network_clock import SETTLED, SETTLED_FORM, NetworkClock
from framefit.target_check import TargetCheck, check_on_target, warn_if_refused
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from onnx import ModelProto

    from artifacts.input_spec import InputSpec
    from artifacts.samples import Samples
    from compress.quantize.result import QuantizeResult
    from compress.quantize.search.contract import Judge
    from compress.quantize.search.precision import PrecisionChoice
    from compress.quantize.settings import QuantizeSettings

Progress = Callable[[str, int, int], None]
_log = logging.getLogger(__name__)
_TOOLS = ("framefit", "onnx", "onnxruntime", "numpy")


@dataclass(frozen=True, kw_only=True)
class QuantizeOutcome:
    """What `quantize_file` made.

    Attributes:
        out: the file.
        source: the float model's file.
        result: what was done, layer by layer.
        target: the runtime that it was made for.
        samples: calibration samples used.
        float_bytes: size of the float model as ONNX.
        int8_bytes: size of the file.
        check: what the target computes with it; None where that does not run here.
        own_states: figures of each output (or part) of a network with states on whole sequences,
            see `compress.own_states.compare_own_states`.
        has_free_batch: whether the file computes with any batch, as the float one does; None where
            that has a batch of its own.
        is_batch_given: the float file's batch is free, and was set by the shapes that were given.
    """

    out: Path
    source: Path
    result: "QuantizeResult"
    target: str
    samples: int
    float_bytes: int
    int8_bytes: int
    check: TargetCheck | None
    own_states: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    has_free_batch: bool | None = None
    is_batch_given: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Returns the outcome for `--json`."""
        layers = self.result.layers
        return {
            "model": str(self.source),
            "out": str(self.out),
            "target": self.target,
            "weights": self.result.settings.weights,
            "sha256": sha256_file(self.out),
            "samples": self.samples,
            "float_bytes": self.float_bytes,
            "int8_bytes": self.int8_bytes,
            "outputs": self._describe(self.result.outputs_db),
            "parts": self._describe(self.result.parts_db),
            "has_free_batch": self.has_free_batch,
            "on_target": asdict(self.check) if self.check is not None else None,
            "layers": [
                {
                    "node": item.node,
                    "op_type": item.op_type,
                    "sqnr_db": item.sqnr_db,
                    "rounding": item.rounding,
                    "weight_bits": item.weight_bits,
                }
                for item in layers
            ],
            "precision": precision_values(self.result.precision),
            "declined": [
                {"node": item.node, "reason": item.reason} for item in self.result.declined
            ],
        }

    def _describe(self, measured_db: Mapping[str, float]) -> dict[str, dict[str, float]]:
        return {
            name: {"sqnr_db": db, **self.own_states.get(name, {})}
            for name, db in measured_db.items()
        }


def precision_values(choice: "PrecisionChoice | None") -> dict[str, Any] | None:
    """Returns the search for layers in float as plain values."""
    if choice is None:
        return None
    return {
        "float_ms": choice.float_ms,
        "int8_ms": choice.int8_ms,
        "chosen_ms": choice.chosen.latency_ms,
        "float_nodes": dict(choice.float_nodes),
        "contracts": [
            {
                "head": item.contract.head,
                "kind": item.contract.kind,
                "limit": item.contract.limit,
                "value": item.value,
                "kept": item.is_kept,
            }
            for item in choice.findings
        ],
        "tried": [
            {
                "float_nodes": len(item.float_nodes),
                "latency_ms": item.latency_ms,
                "head_db": dict(item.head_db),
            }
            for item in choice.tried
        ],
        "frontier": [
            {
                "latency_ms": item.latency_ms,
                "head_db": dict(item.head_db),
                "float_nodes": sorted(item.float_nodes),
            }
            for item in choice.frontier
        ],
    }


def choose_weights(target: str | None) -> str:
    """Returns the type of weights for a target that runs on this processor.

    Args:
        target: where the network runs; TensorRT's integers do not depend on the processor. None
            where nobody said so: a file that is for TensorRT may be run here too.

    Returns:
        int8, or int8-pairs where sums of products would overflow.
    """
    overflows = target != "tensorrt" and overflows_on_int8(read_flags())
    return "int8-pairs" if overflows else "int8"


def warn_of_pairs(weights: str, target: str | None) -> None:
    """Says what `choose_weights` chose, where that is not the usual type."""
    if weights == "int8-pairs":
        _log.warning(
            "%s: weights are kept to sums that fit (int8-pairs); --weights int8 for processors "
            "that have it%s",
            *(PAIRED_SUMS, "" if target else ", and for TensorRT"),
        )


def open_clock(settings: "QuantizeSettings") -> NetworkClock:
    """Returns what times networks for a quantization.

    TensorRT needs a GPU and minutes of building for each network; OpenVINO stands in for it, and
    a warning says so. A search tells sets of layers apart that differ by less than forms may.
    """
    runtime = settings.target
    if runtime == "tensorrt":
        _log.warning("the layers for TensorRT are chosen by their times on openvino, a stand-in")
        runtime = "openvino"
    settled = SETTLED_FORM if settings.allowance is None else SETTLED
    return NetworkClock(runtime, is_to_choose=True, settled=settled)


def choose_clock(settings: "QuantizeSettings", *, is_timed: bool) -> NetworkClock | None:
    """Returns the clock of a quantization; None where its result is not timed.

    Integers other than INT8 are chosen for size or quality, and TensorRT does not run everywhere.
    """
    is_int8 = settings.weights != "int4" and settings.activations == "int8"
    if settings.allowance is not None and settings.weights == "int4":
        _log.warning(
            "INT4 weights make a file smaller, not faster, and a preference goes by latency: "
            "layers that it leaves in float are larger instead; leave it out for the size"
        )
    if settings.allowance is not None or (is_timed and is_int8 and settings.target != "tensorrt"):
        return open_clock(settings)
    return None


def settle_forms(settings: "QuantizeSettings") -> "QuantizeSettings":
    """Returns the settings with the forms whose time need not be measured on this processor.

    What saves a few percent at most is not looked for unless speed is what counts.
    """
    if settings.target != "openvino":
        return settings
    flags = read_flags()
    if settings.swish_by_tanh is None and fuses_silu_best(flags):
        settings = replace(settings, swish_by_tanh=False)
    is_open = settings.symmetric is None and settings.activations == "int8"
    if takes_zero_points_free(flags) and is_open and not settings.is_pressed:
        settings = replace(settings, symmetric=False)
    return settings


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
    from compress.free_batch import free_batch
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
        batches = {} if model_options is not None and model_options.input_shapes else free
        freed = free_batch(result.model, batches, calibration[:2]) if batches else None
        if freed is not None and settings.target == "openvino":
            warn_of_computed_sizes(freed)
        save_onnx(opened.finish(freed or result.model), out, metadata=metadata)
    if log_folder is not None:
        shutil.rmtree(log_folder, ignore_errors=True)
    Workspace().record_artifact(out, "int8-onnx", "compress quantize")
    check = None
    if clock is not None and result.layers:
        check = check_on_target(
            *(opened.model, result.model, calibration, clock.runtime, result.measured_db),
            open_network=clock.open,
        )
    elif result.layers:
        warn_if_refused(result.model, settings.target)
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
        has_free_batch=freed is not None if batches else None,
        is_batch_given=bool(free) and not batches,
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
