"""Contracts on a head's metric, measured on labelled scenes."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from artifacts.onnx_metadata import INPUT_SPEC_KEY, read_metadata
from framefit.metric_judge import open_judge
from framefit.model_source import open_model

CHECKPOINT = Path(__file__).parents[2] / "perception" / "checkpoints" / "road.pt"


@pytest.fixture(scope="module")
def road() -> onnx.ModelProto:
    return open_model(CHECKPOINT).model


def test_a_damaged_head_loses_and_the_others_do_not(road):
    spec = InputSpec.from_json(read_metadata(road)[INPUT_SPEC_KEY])
    judge = open_judge(road, "scenes:4", spec)
    damaged = onnx.ModelProto()
    damaged.CopyFrom(road)
    maker = next(node for node in damaged.graph.node if "segmentation" in node.output)
    weight = next(item for item in damaged.graph.initializer if item.name == maker.input[1])
    weight.CopyFrom(numpy_helper.from_array(np.zeros(weight.dims, np.float32), weight.name))
    assert judge(road) == dict.fromkeys(("detection", "segmentation", "depth"), 0.0)
    drops = judge(damaged)
    assert drops["segmentation"] > 0.2
    assert drops["detection"] == drops["depth"] == 0.0


@pytest.mark.parametrize("labels", ["scene", "scenes:0", "scenes:-1", "coco:here", "voc:a:b"])
def test_unknown_labels_are_refused(road, labels):
    with pytest.raises(InputError, match="--labels"):
        open_judge(road, labels, InputSpec())


def test_a_network_without_heads_is_refused(road):
    bare = onnx.ModelProto()
    bare.CopyFrom(road)
    del bare.metadata_props[:]
    with pytest.raises(InputError, match="what its heads are"):
        open_judge(bare, "scenes", InputSpec())
