"""The road frame: from a camera picture to a plan, as six stages over one frame state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from perception.frame.decode import (
    Detections,
    count_non_finite,
    decode_depth,
    decode_detections,
    decode_segmentation,
)
from perception.frame.ground import default_camera, locate_boxes
from perception.frame.plan import Plan, Planner
from perception.frame.predict import Predictions, PredictionSettings, predict_tracks
from perception.frame.preprocess import Preprocessor
from perception.frame.track import Tracker, Tracks
from perception.scene.camera import Camera

Filled = TypeVar("Filled")
RunNetwork = Callable[[NDArray[np.float32]], Mapping[str, NDArray[Any]]]

STAGE_NAMES = ("preprocess", "network", "postprocess", "tracking", "prediction", "planning")


@dataclass
class FrameState:
    """What is known of one frame; each stage fills its part.

    Attributes:
        picture: [H, W, 3] uint8 BGR of the camera.
        dt_s: time since the frame before, s.
        ego_speed_mps: the vehicle's speed.
        tensor: [1, C, h, w] float32 network input; overwritten by the next frame.
        outputs: raw outputs by name.
        detections: objects found, in input pixels; empty without a detection head.
        mask: [h, w] uint8 classes, None without a segmentation head.
        depth: [h, w] metres, None without a depth head.
        tracks: confirmed objects.
        predictions: where they will be.
        plan: what the vehicle should do.
        non_finite: NaN and infinite values among all outputs.
    """

    picture: NDArray[np.uint8]
    dt_s: float = 1 / 30
    ego_speed_mps: float = 12.0
    tensor: NDArray[np.float32] | None = None
    outputs: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    detections: Detections | None = None
    mask: NDArray[np.uint8] | None = None
    depth: NDArray[np.float32] | None = None
    tracks: Tracks | None = None
    predictions: Predictions | None = None
    plan: Plan | None = None
    non_finite: int = 0


class RoadFrame:
    """Runs the stages; owns the buffers and the tracks that live from frame to frame.

    Args:
        run_network: network input [1, C, h, w] → raw outputs by name.
        spec: how pixels become the input.
        heads_metadata: the network's heads, as stored in its artifact.
        input_hw: height and width of the network's input, pixels.
        frame_hw: height and width of the camera's pictures.
        camera: the camera, in pixels of its pictures; a common one where None.
    """

    def __init__(
        self,
        run_network: RunNetwork,
        spec: InputSpec,
        heads_metadata: Mapping[str, Mapping[str, Any]],
        input_hw: tuple[int, int],
        frame_hw: tuple[int, int],
        camera: Camera | None = None,
    ) -> None:
        self._run_network = run_network
        self._heads = heads_metadata
        self._camera = camera or default_camera(*frame_hw)
        scale = (self._camera.width / input_hw[1], self._camera.height / input_hw[0])
        self._to_camera = np.asarray([*scale, *scale])
        self._preprocessor = Preprocessor(spec, *input_hw)
        box_classes = _classes_of(heads_metadata, "detection")
        self._tracker = Tracker(box_classes, input_hw)
        self._prediction = PredictionSettings()
        self._planner = Planner(
            self._prediction.times_s,
            box_classes,
            _classes_of(heads_metadata, "segmentation"),
            self._camera,
        )

    def preprocess(self, state: FrameState) -> FrameState:
        """Fills `tensor`."""
        state.tensor = self._preprocessor.prepare(state.picture)
        return state

    def run(self, state: FrameState) -> FrameState:
        """Fills `outputs` by running the network."""
        state.outputs = self._run_network(_filled(state.tensor, "preprocess"))
        return state

    def postprocess(self, state: FrameState) -> FrameState:
        """Fills `detections`, `mask`, `depth` and `non_finite`."""
        heads, outputs = self._heads, state.outputs
        if "detection" in heads:
            state.detections = decode_detections(outputs, heads["detection"])
            state.non_finite = state.detections.non_finite
        else:
            state.detections = _no_detections()
        for name in ("segmentation", "depth"):
            if name in heads:
                output = outputs.get(heads[name]["outputs"][0])
                state.non_finite += 0 if output is None else count_non_finite((output,))
        if "segmentation" in heads:
            state.mask = decode_segmentation(outputs, heads["segmentation"])
        if "depth" in heads:
            state.depth = decode_depth(outputs, heads["depth"])
        return state

    def track(self, state: FrameState) -> FrameState:
        """Fills `tracks`."""
        detections = _filled(state.detections, "postprocess")
        boxes = detections.boxes * self._to_camera
        positions = locate_boxes(boxes, self._camera, state.depth)
        state.tracks = self._tracker.update(detections, positions, state.dt_s, state.ego_speed_mps)
        return state

    def predict(self, state: FrameState) -> FrameState:
        """Fills `predictions`."""
        state.predictions = predict_tracks(_filled(state.tracks, "tracking"), self._prediction)
        return state

    def plan(self, state: FrameState) -> FrameState:
        """Fills `plan`."""
        state.plan = self._planner.plan(
            _filled(state.tracks, "tracking"),
            _filled(state.predictions, "prediction"),
            state.mask,
            state.ego_speed_mps,
        )
        return state


def road_stages(
    run_network: RunNetwork,
    spec: InputSpec,
    heads_metadata: Mapping[str, Mapping[str, Any]],
    input_hw: tuple[int, int],
    frame_hw: tuple[int, int] = (720, 1280),
    camera: Camera | None = None,
) -> list[tuple[str, Callable[[FrameState], FrameState]]]:
    """Returns the frame's stages in order: name, and a function of the frame's state.

    The stages share buffers and tracks, so a list of stages serves one camera, one frame at a
    time. One blank picture of `frame_hw` is run through preprocessing here, so that the first
    real frame pays for no set-up.

    Args:
        run_network: network input [1, C, h, w] → raw outputs by name.
        spec: how pixels become the input.
        heads_metadata: the network's heads, as stored in its artifact.
        input_hw: height and width of the network's input, pixels.
        frame_hw: height and width of the camera's pictures.
        camera: the camera, in pixels of its pictures; a common one where None.
    """
    frame = RoadFrame(run_network, spec, heads_metadata, input_hw, frame_hw, camera)
    frame.preprocess(FrameState(np.zeros((*frame_hw, 3), np.uint8)))
    steps = (frame.preprocess, frame.run, frame.postprocess, frame.track, frame.predict, frame.plan)
    return list(zip(STAGE_NAMES, steps, strict=True))


def _classes_of(heads: Mapping[str, Mapping[str, Any]], head: str) -> Sequence[str]:
    return list(heads[head]["classes"]) if head in heads else []


def _no_detections() -> Detections:
    return Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))


def _filled(value: Filled | None, stage: str) -> Filled:
    if value is None:
        raise InputError(f"the frame state has no result of '{stage}'", "stages run in order")
    return value
