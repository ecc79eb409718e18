"""An ONNX file becomes a TensorRT plan with its manifest."""

import importlib.util
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from artifacts.digest import sha256_file
from artifacts.errors import InputError, MissingExtraError, UnavailableError
from artifacts.half_precision import narrow_double
from artifacts.onnx_file import load_before_plugins, save_onnx
from artifacts.onnx_metadata import read_metadata
from artifacts.plan_manifest import FLAVOURS, PlanManifest, write_plan
from artifacts.plugin_tail import PluginTail, join_plugins
from artifacts.wording import name_some
from export.integer_share import require_integer_layers
from export.lint.finding import WRONG
from export.lint.report import lint_model
from export.lint.target import DEFAULT_TARGET, TARGETS
from export.parser_forms import write_for_parser
from export.precision import PrecisionResult, apply_fp16
from export.trt_build import BuiltPlan, build_plan

AUTO = "auto"
RTX = "tensorrt-rtx"
DEFAULT_CAPABILITIES = (86, 89)
"""RTX 30 and 40 series; one TensorRT-RTX plan holds both."""

_SHOWN_PLACES = 3

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """How a plan is built.

    Attributes:
        int8: insist on a quantized network.
        fp16: compute in FP16 outside the Q/DQ; otherwise in FP32.
        sm: compute capabilities, as 86 for 8.6; empty takes `DEFAULT_CAPABILITIES` with
            TensorRT-RTX and the machine's own GPU with TensorRT.
        flavour: a key of `FLAVOURS`, or "auto".
        keep_fp32: names of nodes to keep in FP32.
        timing_cache: file with the timings of earlier builds (TensorRT only).
        timeout_s: the longest that the build may take.
    """

    int8: bool = False
    fp16: bool = True
    sm: tuple[int, ...] = ()
    flavour: str = AUTO
    keep_fp32: tuple[str, ...] = ()
    timing_cache: Path | None = None
    timeout_s: float = 1800.0

    def __post_init__(self) -> None:
        if self.flavour not in (AUTO, *FLAVOURS):
            raise InputError(f"flavour is '{self.flavour}'", ", ".join((AUTO, *FLAVOURS)))
        if not self.timeout_s > 0:
            raise InputError(f"timeout is {self.timeout_s} s", "more than 0")
        if any(value < 10 for value in self.sm):
            raise InputError(f"--sm {min(self.sm)}", "a compute capability such as 86 for 8.6")
        object.__setattr__(self, "sm", tuple(dict.fromkeys(self.sm)))


@dataclass(frozen=True, kw_only=True)
class PlanResult:
    """A plan as written.

    Attributes:
        path: the `.plan` file.
        manifest: what lies beside it.
        onnx_path: the strongly typed network that it was built from, kept to build elsewhere.
        precision: what computes in which precision; None without FP16.
    """

    path: Path
    manifest: PlanManifest
    onnx_path: Path
    precision: PrecisionResult | None


def ready_path(out: Path) -> Path:
    """Returns where the ready-to-build network of a plan is kept: `model.trt.onnx`."""
    return out.with_suffix(".trt.onnx")


def build_plans(
    onnx_path: Path | str,
    out: Path | str | None = None,
    *,
    settings: PlanSettings | None = None,
    samples: Sequence[Mapping[str, NDArray[Any]]] = (),
    input_shapes: dict[str, tuple[int, ...]] | None = None,
    progress: Progress | None = None,
) -> list[PlanResult]:
    """Builds a network into TensorRT plans.

    The network is first made strongly typed (`export.precision`) and written beside the plan, so
    that it can be built elsewhere whatever happens next. TensorRT-RTX puts all compute capabilities
    into one plan (two cost no more bytes than one); TensorRT builds for the GPU in the machine. So
    there is one plan in the list.

    Args:
        onnx_path: the model, float or with Q/DQ.
        out: the `.plan` file; None for the model's name with `.plan`.
        settings: precision, GPUs, flavour.
        samples: input arrays by name on which FP16 is checked; empty takes random input.
        input_shapes: shapes for dynamic inputs.
        progress: told (what, done, total).

    Returns:
        the plans as written.

    Raises:
        InputError: the model is wrong, holds no Q/DQ though `int8` asks for it, FP16 breaks it, or
            TensorRT refuses it.
        MissingExtraError: no TensorRT is installed; the ready-to-build network is kept and named.
        UnavailableError: TensorRT does not work here, crashed or took too long; likewise.
    """
    settings = settings or PlanSettings()
    source = Path(onnx_path)
    target = Path(out) if out is not None else source.with_suffix(".plan")
    if target.suffix != ".plan":
        raise InputError(f"--out is {target}", "a file name that ends in .plan")
    report = progress or _say_nothing
    report("check and type the network", 0, 3)
    model, plugins = _load(source, settings, input_shapes)
    precision = _type_network(model, settings, samples, source)
    typed = precision.model if precision is not None else model
    kept = _keep(join_plugins(typed, plugins), source, target, precision)
    report("build the plan", 1, 3)
    flavour, built = _build(kept, settings)
    report("write the plan", 2, 3)
    manifest = PlanManifest(
        onnx_name=source.name,
        onnx_sha256=sha256_file(source),
        flavour=flavour,
        tensorrt_version=built.version,
        compute_capabilities=built.compute_capabilities,
        settings=_describe(settings, kept, precision),
        metadata={k: v for k, v in read_metadata(typed).items() if k.startswith("framefit.")},
    )
    manifest = write_plan(target, built.content, manifest)
    report("write the plan", 3, 3)
    return [PlanResult(path=target, manifest=manifest, onnx_path=kept, precision=precision)]


def choose_flavour(wanted: str) -> str:
    """Returns the flavour to build with.

    "auto" takes TensorRT where it is installed and the machine has a GPU (it tunes for that GPU),
    else TensorRT-RTX, which needs none.

    Raises:
        MissingExtraError: what is wanted is not installed.
    """
    installed = [name for name, module in FLAVOURS.items() if importlib.util.find_spec(module)]
    if wanted != AUTO:
        if wanted not in installed:
            raise MissingExtraError(FLAVOURS[wanted], wanted, f"--flavour {wanted}")
        return wanted
    if not installed:
        raise MissingExtraError(
            "tensorrt_rtx' or 'tensorrt", "tensorrt-rtx]' or 'framefit[tensorrt"
        )
    if RTX in installed and not _has_gpu():
        return RTX
    return installed[0]


def _has_gpu() -> bool:
    try:
        from cuda.bindings import runtime
    except ImportError:
        return False
    status, count = runtime.cudaGetDeviceCount()
    return bool(status == runtime.cudaError_t.cudaSuccess and count)


def _capabilities(settings: PlanSettings, flavour: str) -> tuple[int, ...]:
    if flavour == RTX and settings.timing_cache is not None:
        raise InputError(
            "a timing cache was named, which TensorRT-RTX does not have",
            fix="leave --timing-cache out; it picks its kernels on the target",
        )
    return settings.sm or (DEFAULT_CAPABILITIES if flavour == RTX else ())


def _load(
    source: Path, settings: PlanSettings, input_shapes: dict[str, tuple[int, ...]] | None
) -> tuple[onnx.ModelProto, PluginTail | None]:
    loaded, plugins = load_before_plugins(source, input_shapes=input_shapes)
    model = write_for_parser(narrow_double(loaded))
    if settings.int8:
        require_integer_layers(model, source.name)
    _require_ranks(model, source.name)
    _refuse_misread(model, source.name, settings.flavour)
    return model, plugins


def _require_ranks(model: onnx.ModelProto, name: str) -> None:
    """Refuses outputs whose number of axes depends on data, as behind an If of unlike branches.

    Raises:
        InputError: naming the first.
    """
    for value in model.graph.output:
        if not value.type.tensor_type.HasField("shape"):
            raise InputError(
                f"the number of axes of output '{value.name}' of {name} is not known",
                "outputs of one number of axes, as TensorRT has them",
                f"framefit export lint {name} says why",
            )


def _refuse_misread(model: onnx.ModelProto, name: str, flavour: str) -> None:
    """Refuses what TensorRT builds without a word, into a plan that computes something else.

    Raises:
        InputError: it has such a node; the first is named.
    """
    report = lint_model(model, target=flavour if flavour in TARGETS else DEFAULT_TARGET)
    wrong = [finding for finding in report.findings if finding.severity == WRONG]
    if wrong:
        places = name_some([finding.place for finding in wrong], _SHOWN_PLACES)
        raise InputError(f"{name}: {places}: {wrong[0].what}: {wrong[0].why}", fix=wrong[0].fix)


def _type_network(
    model: onnx.ModelProto,
    settings: PlanSettings,
    samples: Sequence[Mapping[str, NDArray[Any]]],
    source: Path,
) -> PrecisionResult | None:
    if not settings.fp16:
        return None
    return apply_fp16(model, samples, keep_fp32=settings.keep_fp32, name=source.name)


def _keep(
    typed: onnx.ModelProto, source: Path, target: Path, precision: PrecisionResult | None
) -> Path:
    """Writes the ready-to-build network beside the plan to be."""
    metadata = {
        **read_metadata(onnx.load(source, load_external_data=False)),
        "framefit.parent_sha256": sha256_file(source),
        "framefit.precision": json.dumps(precision.counts if precision else {"fp16": 0}),
    }
    return save_onnx(typed, ready_path(target), metadata=metadata)


def _build(kept: Path, settings: PlanSettings) -> tuple[str, BuiltPlan]:
    """Returns the flavour and the plan; a failure names the ready-to-build network."""
    try:
        flavour = choose_flavour(settings.flavour)
        built = build_plan(
            kept,
            flavour=flavour,
            compute_capabilities=_capabilities(settings, flavour),
            timing_cache=settings.timing_cache,
            timeout_s=settings.timeout_s,
        )
    except UnavailableError as error:
        error.args = (f"{error}; the ready-to-build network is kept in {kept}",)
        raise
    return flavour, built


def _describe(
    settings: PlanSettings, kept: Path, precision: PrecisionResult | None
) -> dict[str, Any]:
    content: dict[str, Any] = {
        "int8": settings.int8,
        "fp16": settings.fp16,
        "built_from": {"name": kept.name, "sha256": sha256_file(kept)},
    }
    if precision is not None:
        content["nodes"] = precision.counts
        content["kept_fp32"] = [f"{item.node}: {item.reason}" for item in precision.kept]
        content["refitted_weights"] = list(precision.refitted)
        content["fp16_sqnr_db"] = _round_db(precision.sqnr_db)
        if precision.int8_sqnr_db is not None:
            content["int8_sqnr_db"] = _round_db(precision.int8_sqnr_db)
        content["checked_on"] = "samples" if precision.is_on_samples else "random input"
    return content


def _round_db(values: Mapping[str, float]) -> dict[str, float | None]:
    """Returns decibels for JSON, which has no infinity: equal outputs are None."""
    return {name: round(db, 2) if math.isfinite(db) else None for name, db in values.items()}


def _say_nothing(what: str, done: int, total: int) -> None:
    """Stands in for a progress bar that nobody wants."""
