"""One variant of the road network: its quality on held-out scenes and its frame at 30 Hz."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.input_spec import InputSpec
from artifacts.onnx_file import load_onnx
from artifacts.onnx_metadata import HEADS_KEY, INPUT_SPEC_KEY, read_metadata
from engines.runtimes import open_session
from latency_budget import (
    Budget,
    Experiment,
    HeadQuality,
    Judgement,
    MeasureSettings,
    ProcessSettings,
    Recipe,
    Stage,
    Workload,
    judge,
    measure_closed,
    measure_in_processes,
)
from latency_budget.report import Variant, build_variant
from perception.evaluate import evaluate_outputs
from perception.frame.draw import draw_frame
from perception.frame.road_frame import FrameState, road_stages
from perception.scene.camera import Camera
from perception.scene.dataset import SceneDataset

if TYPE_CHECKING:
    from engines.session import Session

Progress = Callable[[str, int, int], None]
Heads = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class RoadNetwork:
    """An exported road network and what its file says of itself.

    Attributes:
        name: what the report calls it.
        path: the `.onnx` file.
        spec: how pixels become its input.
        heads: its heads, by name.
        input_hw: height and width of its input, pixels.
    """

    name: str
    path: Path
    spec: InputSpec
    heads: Heads
    input_hw: tuple[int, int]

    @classmethod
    def open(cls, name: str, path: Path) -> "RoadNetwork":
        """Reads the file's metadata."""
        model = load_onnx(path)
        metadata = read_metadata(model)
        dims = model.graph.input[0].type.tensor_type.shape.dim
        return cls(
            name=name,
            path=path,
            spec=InputSpec.from_json(metadata[INPUT_SPEC_KEY]),
            heads=json.loads(metadata[HEADS_KEY]),
            input_hw=(dims[2].dim_value, dims[3].dim_value),
        )


@dataclass(frozen=True, kw_only=True)
class CheckedVariant:
    """What was measured of one variant.

    Attributes:
        network: the network.
        runtime: what ran it.
        session: what the session said of itself.
        heads: {"metric", "value"} per head.
        experiment: closed loop and paced.
        pictures: the annotated pictures, BGR.
    """

    network: RoadNetwork
    runtime: str
    session: dict[str, Any]
    heads: Heads
    experiment: Experiment
    pictures: list[NDArray[np.uint8]]


def check_variant(
    network: RoadNetwork,
    drive: Sequence[NDArray[np.uint8]],
    camera: Camera,
    scenes: SceneDataset,
    settings: ProcessSettings,
    picture_indices: Sequence[int],
    progress: Progress,
) -> CheckedVariant:
    """Evaluates and draws one variant, then measures it in processes of its own.

    Args:
        network: what to check.
        drive: camera pictures [H, W, 3] BGR, played in a circle.
        camera: the camera, in pixels of its pictures.
        scenes: labelled scenes that training and calibration never saw.
        settings: how to measure.
        picture_indices: frames of the drive to draw.
        progress: is told (what, done, total).
    """

    def note(what: str, done: int, total: int) -> None:
        progress(f"{network.name}: {what}", done, total)

    with open_session(network.path) as session:
        run = _runner(session)
        heads = evaluate_outputs(
            run, scenes, network.spec, network.heads, size=network.input_hw, progress=note
        )
        steps = road_stages(
            run, network.spec, network.heads, network.input_hw, drive[0].shape[:2], camera
        )
        stages = [Stage(name, function) for name, function in steps]
        states = [FrameState(picture) for picture in drive]
        if _is_too_slow(stages, states, settings.measure.rate_hz):
            settings = _brief(settings)
        pictures = _draw(stages, drive, network, camera, picture_indices)
    experiment = _measure_apart(network, drive, camera, settings, note)
    return CheckedVariant(
        network=network,
        runtime=experiment.runtime,
        session=experiment.session or {},
        heads=heads,
        experiment=experiment,
        pictures=pictures,
    )


def open_road_workload(model: str, drive: str, camera: dict[str, Any]) -> Workload:
    """Makes the road frame in the process that measures it; the function of a `Recipe`.

    Args:
        model: the exported road network.
        drive: an `.npy` of camera pictures, [N, H, W, 3] uint8 BGR.
        camera: the values of `Camera`.
    """
    network = RoadNetwork.open("", Path(model))
    pictures = np.load(drive, allow_pickle=False)
    session = open_session(network.path)
    steps = road_stages(
        _runner(session),
        network.spec,
        network.heads,
        network.input_hw,
        pictures.shape[1:3],
        Camera(**camera),
    )
    return Workload(
        stages=[Stage(name, function) for name, function in steps],
        frames=[FrameState(picture) for picture in pictures],
        runtime=session.runtime,
        session=session.describe(),
        close=session.close,
    )


def _measure_apart(
    network: RoadNetwork,
    drive: Sequence[NDArray[np.uint8]],
    camera: Camera,
    settings: ProcessSettings,
    progress: Progress,
) -> Experiment:
    """Measures in processes that never saw the quantizer, the trainer or their threads."""
    with tempfile.TemporaryDirectory(prefix="framefit-") as folder:
        pictures = Path(folder) / "drive.npy"
        np.save(pictures, np.stack(drive))
        recipe = Recipe(
            function="framefit.road_check:open_road_workload",
            arguments={
                "model": str(network.path),
                "drive": str(pictures),
                "camera": asdict(camera),
            },
            artifact=str(network.path),
        )
        return measure_in_processes(recipe, settings, progress)


def _brief(settings: ProcessSettings) -> ProcessSettings:
    """A network that cannot keep the camera's rate needs no more than to show it."""
    measure = replace(settings.measure, frames=min(settings.measure.frames, 300), policy="latest")
    return replace(settings, measure=measure, restarts=1, parts=replace(settings.parts, other=0))


def _is_too_slow(stages: list[Stage], states: list[FrameState], rate_hz: float) -> bool:
    """Returns whether the median frame takes longer than the camera's period."""
    pilot = measure_closed(stages, states, MeasureSettings(frames=20, warmup_frames=10))
    return float(np.median(pilot.done_ns - pilot.start_ns)) > 1e9 / rate_hz


def _runner(session: "Session") -> Callable[[NDArray[np.float32]], dict[str, NDArray[Any]]]:
    """Returns a function of the input tensor; its outputs are lent until the next call."""
    name = session.inputs[0].name
    return lambda tensor: session.run_borrowed({name: tensor})


def _draw(
    stages: list[Stage],
    drive: Sequence[NDArray[np.uint8]],
    network: RoadNetwork,
    camera: Camera,
    indices: Sequence[int],
) -> list[NDArray[np.uint8]]:
    pictures = []
    for index in range(max(indices) + 1):
        state = FrameState(drive[index])
        for stage in stages:
            state = stage.run(state)
        if index in indices:
            pictures.append(draw_frame(state, network.heads, network.input_hw, camera))
    return pictures


def judge_variant(
    checked: CheckedVariant, budget: Budget, reference: Heads
) -> tuple[Variant, Judgement]:
    """Judges a variant against the budget and summarises it for the report.

    A network that cannot keep the camera's rate is shown, and judged, by its frames back to back:
    paced, they would only queue up, and their latency would say how long was measured.

    Args:
        checked: what was measured.
        budget: the limits.
        reference: the float network's heads.
    """
    experiment = checked.experiment
    period_ns = round(1e9 / budget.frame.rate_hz)
    service = experiment.closed.done_ns - experiment.closed.start_ns
    run = experiment.closed if np.median(service) > period_ns else experiment.paced
    judgement = judge(
        run,
        budget,
        environment=experiment.environment,
        heads={
            name: HeadQuality(
                metric=head["metric"],
                reference=reference[name]["value"],
                candidate=head["value"],
            )
            for name, head in checked.heads.items()
        },
        session=checked.session,
    )
    variant = build_variant(
        checked.network.name,
        run,
        budget,
        judgement=judgement,
        experiment=experiment,
        artifact=checked.network.path,
        runtime=checked.runtime,
        session=checked.session,
        heads=checked.heads,
    )
    return variant, judgement
