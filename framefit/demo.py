"""The main job on the shipped network, end to end: `framefit demo`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.atomic import atomic_path, write_json
from artifacts.errors import UnavailableError
from compress.quantize.settings import QuantizeSettings
from export.network_file import export_network_file
from export.to_trt import PlanSettings, build_plans
from framefit.frame_shapes import Drive, measure_frame_shapes
from framefit.quantize_choices import choose_weights, warn_of_pairs
from framefit.quantize_job import quantize_file
from framefit.report_job import extend_history, view_roofline
from framefit.road_check import CheckedVariant, RoadNetwork, check_variant, judge_variant
from latency_budget import Budget, MeasureSettings, Parts, ProcessSettings, Scheduling
from latency_budget.report import Report, build_report
from latency_budget.report_extras import ReportExtras, StageOption
from latency_budget.reports import write_report
from perception.frame.draw import compose_side_by_side
from perception.scene.camera import Camera
from perception.scene.dataset import SceneDataset
from perception.scene.sequence import SceneSequence

Progress = Callable[[str, int, int], None]

CHECKPOINT = Path(__file__).parents[1] / "perception" / "checkpoints" / "road.pt"
OPTIONS, HISTORY = "options.json", "history.jsonl"
CALIBRATION_SEED, HELD_OUT_SEED, DRIVE_SEED = 1001, 2002, 3003
PARTS = Parts(control=60, closed=150, other=60)
BUDGET: dict[str, Any] = {
    "frame": {
        "rate_hz": 30,
        "deadline_ms": 33.0,
        "p99_over_p50": 1.2,
        "max_consecutive_misses": 2,
    },
    "stages": {
        "preprocess": 3.0,
        "network": 20.0,
        "postprocess": 2.5,
        "tracking": 2.5,
        "prediction": 1.0,
        "planning": 4.0,
    },
    "environment": {"mode": "report"},
    "heads": {
        "detection": {"metric": "mAP50", "max_drop": 0.01},
        "segmentation": {"metric": "mIoU", "max_drop": 0.01},
        "depth": {"metric": "abs_rel", "max_drop": 0.01},
    },
}


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """How large the demo is.

    Attributes:
        checkpoint: a framefit checkpoint of a road network.
        calibration_pictures: rendered for the quantizer.
        held_out_scenes: labelled scenes for the quality of both variants.
        frames: measured at 30 Hz, of each variant.
        restarts: processes that share the frames of a variant that keeps the camera's rate.
        drive_frames: camera pictures, played in a circle.
        shape_frames: measured back to back, of each shape of the frame (heads off, separate
            backbones); a network that cannot keep the camera's rate gets a fifth.
        capabilities: NVIDIA compute capabilities of the plan.
    """

    checkpoint: Path = CHECKPOINT
    calibration_pictures: int = 32
    held_out_scenes: int = 200
    frames: int = 1000
    restarts: int = 3
    drive_frames: int = 90
    shape_frames: int = 100
    capabilities: tuple[int, ...] = (86, 89)


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """What the demo made.

    Attributes:
        report: the whole check; the verdict is that of the INT8 variant.
        files: what was written.
    """

    report: Report
    files: list[Path] = field(default_factory=list)


def run_demo(out: Path, settings: DemoSettings, progress: Progress) -> DemoResult:
    """Quantizes, exports, evaluates and measures the shipped network.

    Args:
        out: the folder for the artifacts, the pictures and the report.
        settings: how large the demo is.
        progress: is told (what, done, total).

    Raises:
        InputError: the folder cannot be written.
    """
    calibration = _write_calibration(out / "calibration", settings.calibration_pictures, progress)
    progress("export onnx", 0, 1)
    float_onnx = out / "road.onnx"
    export_network_file(settings.checkpoint, float_onnx)
    progress("export onnx", 1, 1)
    int8_onnx = out / "road.int8.onnx"
    settings_of_both = QuantizeSettings(weights=choose_weights(None))
    quantize_file(float_onnx, str(calibration), settings_of_both, out=int8_onnx, progress=progress)
    warn_of_pairs(settings_of_both.weights, None)
    notes = [_build_plan(int8_onnx, out / "road.plan", settings, progress)]

    sequence = SceneSequence(DRIVE_SEED)
    drive = _render_drive(sequence, settings.drive_frames, progress)
    networks = [RoadNetwork.open("float", float_onnx), RoadNetwork.open("INT8", int8_onnx)]
    checked = [_check(network, drive, sequence.camera, settings, progress) for network in networks]
    options = _measure_shapes(checked, drive, sequence.camera, settings, progress)
    report = _report(checked, tuple(notes))
    report = replace(report, extras=_extras(report, options, int8_onnx, out, progress))
    files = [float_onnx, int8_onnx, *write_report(report, out).values(), out / OPTIONS]
    files += _write_pictures(out / "pictures", checked, settings)
    return DemoResult(report=report, files=files)


def _render_drive(sequence: SceneSequence, frames: int, progress: Progress) -> Drive:
    drive = []
    for index in range(frames):
        progress("render the drive", index, frames)
        drive.append(sequence.frame(index).image)
    progress("render the drive", frames, frames)
    return drive


def _check(
    network: RoadNetwork, drive: Drive, camera: Camera, settings: DemoSettings, progress: Progress
) -> CheckedVariant:
    return check_variant(
        network,
        drive,
        camera,
        SceneDataset(settings.held_out_scenes, HELD_OUT_SEED, *network.input_hw),
        ProcessSettings(
            measure=MeasureSettings(frames=settings.frames, rate_hz=BUDGET["frame"]["rate_hz"]),
            restarts=settings.restarts,
            parts=PARTS,
            scheduling=Scheduling(priority="realtime"),
        ),
        _picture_indices(settings.drive_frames),
        progress,
    )


def _picture_indices(frames: int) -> list[int]:
    return [round(frames * part / 4) - 1 for part in range(1, 5)]


def _measure_shapes(
    checked: Sequence[CheckedVariant],
    drive: Drive,
    camera: Camera,
    settings: DemoSettings,
    progress: Progress,
) -> tuple[StageOption, ...]:
    period_ns = 1e9 / BUDGET["frame"]["rate_hz"]
    plan = []
    for variant in checked:
        closed = variant.experiment.closed
        is_too_slow = np.median(closed.done_ns - closed.start_ns) > period_ns
        plan.append((variant.network, settings.shape_frames // (5 if is_too_slow else 1)))
    return tuple(measure_frame_shapes(plan, drive, camera, progress))


def _extras(
    report: Report, options: tuple[StageOption, ...], model: Path, out: Path, progress: Progress
) -> ReportExtras:
    """Writes the toggles' options and this run's line of the history; measures the roofline."""
    write_json(out / OPTIONS, [option.to_dict() for option in options])
    progress("profile the network and measure this machine's peaks", 0, 1)
    roofline = view_roofline(model)
    progress("profile the network and measure this machine's peaks", 1, 1)
    return ReportExtras(
        options=options,
        roofline=roofline,
        history=extend_history(out / HISTORY, "", report),
    )


def _write_calibration(folder: Path, count: int, progress: Progress) -> Path:
    import cv2

    for index, scene in enumerate(SceneDataset(count, CALIBRATION_SEED)):
        progress("render calibration pictures", index, count)
        with atomic_path(folder / f"{index:03d}.png") as path:
            cv2.imwrite(str(path), scene.image)
    progress("render calibration pictures", count, count)
    return folder


def _build_plan(int8_onnx: Path, out: Path, settings: DemoSettings, progress: Progress) -> str:
    try:
        plans = build_plans(
            int8_onnx,
            out,
            settings=PlanSettings(int8=True, sm=settings.capabilities),
            progress=progress,
        )
    except UnavailableError as error:
        return f"No TensorRT plan: {error}"
    manifest = plans[0].manifest
    capabilities = ", ".join(f"{value / 10:.1f}" for value in manifest.compute_capabilities)
    return (
        f"{plans[0].path.name} was built (not run) with {manifest.flavour} "
        f"{manifest.tensorrt_version} for compute capabilities {capabilities}"
    )


def _report(checked: list[CheckedVariant], notes: tuple[str, ...]) -> Report:
    budget = Budget.from_dict(BUDGET)
    reference = checked[0].heads
    judged = [judge_variant(variant, budget, reference) for variant in checked]
    before, after = (variant for variant, _ in judged)
    facts = [
        "The float network cannot keep the camera's rate: its frames are measured back to back."
        if before.run is not None and before.run.mode == "closed"
        else "Both variants are measured at the camera's rate.",
        f"Quality is measured on scenes that neither training nor calibration saw; "
        f"INT8 is {before.size_bytes / after.size_bytes:.2f} times smaller.",
    ]
    return build_report(
        [before, after],
        budget,
        judged[-1][1],
        environment=checked[-1].experiment.environment,
        title="framefit demo: one backbone, three heads, 30 frames per second",
        notes=(*facts, *notes),
    )


def _write_pictures(
    folder: Path, checked: list[CheckedVariant], settings: DemoSettings
) -> list[Path]:
    import cv2

    captions = [
        f"network P50 {np.median(variant.experiment.closed.stage_ns('network')) / 1e6:.1f} ms"
        for variant in checked
    ]
    written = []
    for index, left, right in zip(
        _picture_indices(settings.drive_frames),
        checked[0].pictures,
        checked[1].pictures,
        strict=True,
    ):
        picture = compose_side_by_side(
            left,
            right,
            title=f"framefit demo, frame {index + 1}",
            captions=(captions[0], captions[1]),
        )
        target = folder / f"frame_{index + 1:03d}.png"
        with atomic_path(target) as path:
            cv2.imwrite(str(path), picture)
        written.append(target)
    return written
