"""Measures the road frame in other shapes: heads switched off, or a backbone for each head."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from engines.runtimes import Session, open_session
from framefit.options_job import BACKBONE, OFF, ON, PRECISION, SEPARATE, SHARED
from framefit.road_check import RoadNetwork
from latency_budget import MeasureSettings, Run, Scheduling, Stage, measure_closed
from latency_budget.driving_mode import cut_to_heads
from latency_budget.report import NETWORK_STAGE
from latency_budget.report_extras import WHOLE_FRAME, StageOption
from perception.frame.road_frame import FrameState, road_stages
from perception.scene.camera import Camera

Progress = Callable[[str, int, int], None]
Drive = Sequence[NDArray[np.uint8]]

TURNS = 10
WARMUP_FRAMES = 1


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """One shape of one network's frame.

    Attributes:
        network: the network.
        heads: the heads that are on.
        backbone: SHARED or SEPARATE.
        stages: the frame's stages; the network's are one per part.
        parts: names of the network's stages.
        runs: what was measured, a run per turn.
    """

    network: RoadNetwork
    heads: tuple[str, ...]
    backbone: str
    stages: list[Stage]
    parts: tuple[str, ...]
    runs: list[Run] = field(default_factory=list)

    def stage_ns(self, name: str) -> NDArray[np.int64]:
        """Returns [n] nanoseconds of one stage over all turns."""
        return np.concatenate([run.stage_ns(name) for run in self.runs])

    def network_ns(self, heads: Sequence[str]) -> NDArray[np.int64]:
        """Returns [n] nanoseconds of the network's parts for these heads, frame by frame."""
        parts = self.parts if self.backbone == SHARED else [_part(head) for head in heads]
        total: NDArray[np.int64] = np.sum([self.stage_ns(name) for name in parts], axis=0)
        return total

    def option(self, stage: str, samples_ns: NDArray[np.int64], **changed: str) -> StageOption:
        """Returns what one stage, or the whole frame, took in this shape."""
        switches = {head: ON if head in self.heads else OFF for head in self.network.heads}
        settings = {PRECISION: self.network.name, BACKBONE: self.backbone, **switches}
        return StageOption.from_samples(stage, {**settings, **changed}, samples_ns)


def measure_frame_shapes(
    networks: Sequence[tuple[RoadNetwork, int]], drive: Drive, camera: Camera, progress: Progress
) -> list[StageOption]:
    """Measures whole frames back to back, in turns of all shapes, so that their ratios hold.

    In a process of its own, as urgent as the system allows: no threads or garbage of earlier work.

    The shapes: every combination of heads on one shared backbone, and a backbone of its own for
    each head (the cut networks run one after another, each timed). So a frame without a head also
    lacks what its decoding costs, and what tracking and planning do with it.

    Args:
        networks: each network and the timed frames of each of its shapes; the one that ships last.
        drive: camera pictures [H, W, 3] BGR.
        camera: the camera, in pixels of its pictures.
        progress: is told (what, done, total).

    Returns:
        one option per stage and shape, and one of the stage `WHOLE_FRAME` per measured shape; those
        of the last network with all heads on one backbone come last.
    """
    what = "measure the frame without each head, and with separate backbones"
    progress(what, 0, 1)
    kept = list(drive[: max(frames // TURNS for _, frames in networks) + WARMUP_FRAMES])
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        found = apart.submit(_measure, networks, kept, camera).result()
    progress(what, 1, 1)
    return found


def _measure(
    networks: Sequence[tuple[RoadNetwork, int]], drive: Drive, camera: Camera
) -> list[StageOption]:
    Scheduling(priority="realtime").apply()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        frame_hw = (drive[0].shape[0], drive[0].shape[1])
        known = []
        for number, (network, frames) in enumerate(networks):
            sessions = _open_cuts(network, folder / str(number), stack)
            known.append((_shapes(network, sessions, frame_hw, camera), max(1, frames // TURNS)))
        for _ in range(TURNS):
            for shapes, frames in known:
                for shape in shapes:
                    _time_shape(shape, frames, drive)
    return [option for shapes, _ in known for option in _options(shapes)]


def _open_cuts(
    network: RoadNetwork, folder: Path, stack: ExitStack
) -> dict[tuple[str, ...], Session]:
    """Opens the network for each combination of its heads; all of them come last."""
    heads = tuple(network.heads)
    kept = [part for count in range(1, len(heads) + 1) for part in combinations(heads, count)]
    folder.mkdir()
    paths = [cut_to_heads(network.path, part, folder / f"{i}.onnx") for i, part in enumerate(kept)]
    return {
        part: stack.enter_context(open_session(path))
        for part, path in zip(kept, paths, strict=True)
    }


def _shapes(
    network: RoadNetwork,
    sessions: Mapping[tuple[str, ...], Session],
    frame_hw: tuple[int, int],
    camera: Camera,
) -> list[_Shape]:
    """Returns all shapes of a network; with all heads: separate, then shared backbones, last."""

    def shape(heads: tuple[str, ...], backbone: str, parts: Mapping[str, Session]) -> _Shape:
        stages = _stages(network, heads, parts, frame_hw, camera)
        return _Shape(
            network=network, heads=heads, backbone=backbone, stages=stages, parts=tuple(parts)
        )

    found = [shape(part, SHARED, {NETWORK_STAGE: open_}) for part, open_ in sessions.items()]
    heads = tuple(network.heads)
    if len(heads) > 1:
        alone = {_part(head): sessions[(head,)] for head in heads}
        found.insert(-1, shape(heads, SEPARATE, alone))
    return found


def _time_shape(shape: _Shape, frames: int, drive: Drive) -> None:
    states = [FrameState(picture) for picture in drive[: frames + WARMUP_FRAMES]]
    timing = MeasureSettings(frames=frames, warmup_frames=WARMUP_FRAMES)
    shape.runs.append(measure_closed(shape.stages, states, timing))


def _options(shapes: Sequence[_Shape]) -> list[StageOption]:
    """Returns the options of one network; separate backbones with a head off are put together."""
    apart = next((shape for shape in shapes if shape.backbone == SEPARATE), None)
    options = []
    for shape in shapes:
        others = [stage.name for stage in shape.stages if stage.name not in shape.parts]
        taken = {name: shape.stage_ns(name) for name in others}
        if apart is not None and shape.heads != apart.heads:
            parts = {**taken, NETWORK_STAGE: apart.network_ns(shape.heads)}
            options += [shape.option(name, ns, backbone=SEPARATE) for name, ns in parts.items()]
        taken[NETWORK_STAGE] = shape.network_ns(shape.heads)
        taken[WHOLE_FRAME] = np.concatenate([run.latency_ns for run in shape.runs])
        options += [shape.option(name, ns) for name, ns in taken.items()]
    return options


def _stages(
    network: RoadNetwork,
    heads: Sequence[str],
    parts: Mapping[str, Session],
    frame_hw: tuple[int, int],
    camera: Camera,
) -> list[Stage]:
    """Returns the frame's stages for some heads, with a stage for each part of the network."""
    described = {head: network.heads[head] for head in heads}
    steps = road_stages(dict, network.spec, described, network.input_hw, frame_hw, camera)
    stages = []
    for name, function in steps:
        if name != NETWORK_STAGE:
            stages.append(Stage(name, function))
            continue
        for index, (part, session) in enumerate(parts.items()):
            stages.append(Stage(part, _run_part(session, keeps=index > 0)))
    return stages


def _run_part(session: Session, *, keeps: bool) -> Callable[[FrameState], FrameState]:
    """Returns a stage that runs one part; it keeps the outputs of the parts before it or not."""
    name = session.inputs[0].name

    def run(state: FrameState) -> FrameState:
        found = session.run_borrowed({name: np.asarray(state.tensor)})
        state.outputs = {**state.outputs, **found} if keeps else found
        return state

    return run


def _part(head: str) -> str:
    return f"{NETWORK_STAGE} of {head}"
