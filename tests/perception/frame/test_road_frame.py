"""The assembled frame, driven by a network whose outputs are known."""

import time

import numpy as np
import pytest

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from perception.frame.ground import default_camera, locate_boxes
from perception.frame.road_frame import STAGE_NAMES, FrameState, road_stages

INPUT_HW = (96, 160)
HEADS = {
    "detection": {
        "outputs": [f"detection_{kind}_8" for kind in ("class", "box", "centre")],
        "strides": [8],
        "classes": ["car", "truck", "pedestrian"],
    },
    "segmentation": {
        "outputs": ["segmentation"],
        "classes": ["background", "sidewalk", "drivable", "lane", "vehicle", "pedestrian"],
        "stride": 4,
    },
    "depth": {"outputs": ["depth"], "stride": 4},
}


def oracle_outputs(box=(70, 40, 100, 64), distance_m=15.0):
    """Raw outputs that say: one car in `box`, road everywhere, the car at `distance_m`."""
    height, width = INPUT_HW
    outputs = {
        "detection_class_8": np.full((1, 3, height // 8, width // 8), -9, np.float32),
        "detection_box_8": np.zeros((1, 4, height // 8, width // 8), np.float32),
        "detection_centre_8": np.zeros((1, 1, height // 8, width // 8), np.float32),
        "segmentation": np.zeros((1, 6, height // 4, width // 4), np.float32),
        "depth": np.full((1, 1, height // 4, width // 4), -np.log(distance_m), np.float32),
    }
    outputs["segmentation"][0, 2] = 5
    x1, y1, x2, y2 = box
    column, row = int((x1 + x2) / 16), int((y1 + y2) / 16)
    x, y = column * 8 + 4, row * 8 + 4
    outputs["detection_class_8"][0, 0, row, column] = 8
    outputs["detection_centre_8"][0, 0, row, column] = 8
    reach = np.asarray([x - x1, y - y1, x2 - x, y2 - y]) / 8
    outputs["detection_box_8"][0, :, row, column] = np.log(reach)
    return outputs


def picture():
    return np.random.default_rng(0).integers(0, 256, (180, 320, 3), dtype=np.uint8)


def run_frames(stages, count, **state):
    for _ in range(count):
        frame = FrameState(picture(), **state)
        for _, run in stages:
            frame = run(frame)
    return frame


def stages_of(run_network, heads=HEADS):
    return road_stages(run_network, InputSpec(), heads, INPUT_HW, frame_hw=(180, 320))


def test_stages_have_the_names_of_the_budget():
    names = tuple(name for name, _ in stages_of(lambda tensor: oracle_outputs()))
    assert names == STAGE_NAMES
    assert names == (
        "preprocess", "network", "postprocess", "tracking", "prediction", "planning",
    )  # fmt: skip


def test_every_stage_fills_its_result():
    seen = []

    def network(tensor):
        seen.append(tensor.shape)
        return oracle_outputs()

    frame = run_frames(stages_of(network), 4)
    assert seen[0] == (1, 3, *INPUT_HW)
    np.testing.assert_allclose(frame.detections.boxes, [[70, 40, 100, 64]], atol=0.1)
    assert frame.tracks.ids.tolist() == [1]
    assert frame.tracks.positions[0, 1] == pytest.approx(15, rel=0.1)
    assert frame.predictions.positions.shape == (1, 15, 2)
    assert (frame.mask == 2).all()
    assert frame.plan is not None
    assert frame.non_finite == 0


def test_damaged_outputs_are_counted_and_the_frame_goes_on():
    def network(tensor):
        return {name: np.full_like(v, np.nan) for name, v in oracle_outputs().items()}

    frame = run_frames(stages_of(network), 3)
    assert frame.non_finite == sum(v.size for v in oracle_outputs().values())
    assert len(frame.detections) == 0
    assert frame.plan is not None
    assert not frame.plan.is_feasible


@pytest.mark.parametrize("missing", ["detection", "segmentation", "depth"])
def test_a_network_without_a_head_still_drives(missing):
    heads = {name: head for name, head in HEADS.items() if name != missing}
    frame = run_frames(stages_of(lambda tensor: oracle_outputs(), heads), 4)
    assert frame.plan is not None
    assert (len(frame.tracks) == 0) == (missing == "detection")


def test_a_stage_out_of_order_is_told():
    stages = dict(stages_of(lambda tensor: oracle_outputs()))
    with pytest.raises(InputError, match="postprocess"):
        stages["tracking"](FrameState(picture()))


def test_two_lists_of_stages_share_nothing():
    first, second = (stages_of(lambda tensor: oracle_outputs()) for _ in range(2))
    run_frames(first, 4)
    assert len(run_frames(second, 1).tracks) == 0


@pytest.mark.timing
def test_all_stages_but_the_network_leave_it_most_of_the_frame():
    stages = stages_of(lambda tensor: oracle_outputs())
    times_ms = []
    for _ in range(30):
        started_ns = time.perf_counter_ns()
        run_frames(stages, 1)
        times_ms.append((time.perf_counter_ns() - started_ns) / 1e6)
    assert min(times_ms) < 16


def test_places_do_not_depend_on_the_inputs_aspect():
    def network(tensor):
        outputs = oracle_outputs((70, 40, 100, 64))
        del outputs["depth"]
        return outputs

    heads = {"detection": HEADS["detection"]}
    wide = road_stages(network, InputSpec(), heads, INPUT_HW, frame_hw=(192, 320))
    tall = road_stages(network, InputSpec(), heads, INPUT_HW, frame_hw=(384, 320))
    camera = default_camera(192, 320)
    expected = locate_boxes(np.asarray([[140, 80, 200, 128]]), camera)
    np.testing.assert_allclose(run_frames(wide, 4).tracks.positions, expected, atol=2)
    stretched = locate_boxes(np.asarray([[140, 160, 200, 256]]), default_camera(384, 320))
    np.testing.assert_allclose(run_frames(tall, 4).tracks.positions, stretched, atol=2)
    assert abs(expected - stretched).max() > 3
