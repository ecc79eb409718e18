"""The road frame without heads and with separate backbones, on a network of seven convolutions."""

import json
from collections import defaultdict

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.input_spec import InputSpec
from artifacts.onnx_metadata import HEADS_KEY, INPUT_SPEC_KEY
from framefit.frame_shapes import measure_frame_shapes
from framefit.road_check import RoadNetwork
from latency_budget.report_extras import WHOLE_FRAME
from perception.frame.ground import default_camera
from perception.frame.road_frame import STAGE_NAMES

HEADS = {
    "detection": {
        "outputs": [f"detection_{kind}_8" for kind in ("class", "box", "centre")],
        "strides": [8],
        "classes": ["car", "truck"],
    },
    "segmentation": {"outputs": ["segmentation"], "classes": ["sky", "drivable"], "stride": 8},
    "depth": {"outputs": ["depth"], "stride": 8},
}
CHANNELS = {
    "detection_class_8": 2,
    "detection_box_8": 4,
    "detection_centre_8": 1,
    "segmentation": 2,
    "depth": 1,
}
INPUT_HW, FRAME_HW = (64, 96), (96, 144)
ALL_ON = {"detection": "on", "segmentation": "on", "depth": "on"}


def write_road_network(path, width):
    """A trunk of `width` channels at stride 8 with a convolution per output."""
    rng = np.random.default_rng(0)

    def weights(name, shape):
        return numpy_helper.from_array(rng.normal(0, 0.05, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["image", "stem"], ["a"], "stem", strides=[8, 8]),
        helper.make_node("Conv", ["a", "body"], ["b"], "body", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["b"], ["c"], "relu"),
        *(helper.make_node("Conv", ["c", f"{n}.w"], [n], n) for n in CHANNELS),
    ]
    initializers = [
        weights("stem", (width, 3, 8, 8)),
        weights("body", (width, width, 3, 3)),
        *(weights(f"{name}.w", (count, width, 1, 1)) for name, count in CHANNELS.items()),
    ]
    rows, columns = INPUT_HW[0] // 8, INPUT_HW[1] // 8
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "road",
        [value("image", TensorProto.FLOAT, [1, 3, *INPUT_HW])],
        [value(n, TensorProto.FLOAT, [1, count, rows, columns]) for n, count in CHANNELS.items()],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    metadata = {HEADS_KEY: json.dumps(HEADS), INPUT_SPEC_KEY: InputSpec().to_json()}
    helper.set_model_props(model, metadata)
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    drive = np.random.default_rng(1).integers(0, 256, (6, *FRAME_HW, 3), np.uint8)
    networks = [
        (RoadNetwork.open("float", write_road_network(folder / "wide.onnx", 512)), 20),
        (RoadNetwork.open("INT8", write_road_network(folder / "slim.onnx", 8)), 30),
    ]
    return measure_frame_shapes(
        networks, list(drive), default_camera(*FRAME_HW), lambda what, done, total: None
    )


def by_stage(options):
    found = defaultdict(dict)
    for option in options:
        key = tuple(option.settings.values())
        assert key not in found[option.stage]
        found[option.stage][key] = option
    return found


def test_every_choice_but_no_head_at_all_is_there_for_every_stage(options):
    found = by_stage(options)
    assert set(found) == {*STAGE_NAMES, WHOLE_FRAME}
    for name in STAGE_NAMES:
        assert len(found[name]) == 2 * 2 * 7
    assert len(found[WHOLE_FRAME]) == 2 * (7 + 1)


def test_what_ships_comes_last_for_every_stage(options):
    for shapes in by_stage(options).values():
        last = list(shapes.values())[-1]
        assert last.settings == {"precision": "INT8", "backbone": "shared", **ALL_ON}


def test_each_network_has_its_own_number_of_frames(options):
    counts = {(o.settings["precision"], o.n) for o in options}
    assert counts == {("float", 20), ("INT8", 30)}


def test_separate_backbones_take_longer_than_a_shared_one(options):
    found = by_stage(options)["network"]
    on = tuple(ALL_ON.values())
    assert found["float", "one per head", *on].p50_ms > found["float", "shared", *on].p50_ms
    assert found["float", "shared", *on].p50_ms > found["INT8", "shared", *on].p50_ms


def test_a_part_of_separate_backbones_takes_less_than_all_of_them(options):
    found = by_stage(options)["network"]
    assert (
        found["float", "one per head", "on", "off", "off"].p50_ms
        < found["float", "one per head", "on", "on", "on"].p50_ms
    )


def test_a_frame_takes_at_least_its_network(options):
    found = by_stage(options)
    for key, whole in found[WHOLE_FRAME].items():
        assert min(whole.quantiles_ms) > min(found["network"][key].quantiles_ms)
