"""By how much each head's metric is worse than the float network's, on labelled pictures."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from artifacts.onnx_inputs import input_tensors
from artifacts.onnx_metadata import HEADS_KEY, read_metadata
from compress.model_runner import open_runner
from compress.quantize.search.contract import Judge
from perception.data.coco import CocoDataset
from perception.data.mask_folder import MaskFolderDataset
from perception.evaluate import evaluate_outputs
from perception.scene.dataset import SceneDataset
from perception.training_data import HELD_OUT_SEED, MASK_FORMATS, ResizedScenes

LOWER_IS_BETTER = frozenset({"abs_rel"})
SCENES = 100
FORMS = (
    "scenes[:COUNT], coco:PICTURES:FILE.json, cityscapes:PICTURES:MASKS or camvid:PICTURES:MASKS"
)


def open_judge(model: onnx.ModelProto, labels: str, spec: InputSpec) -> Judge:
    """Measures the float network once and returns what compares others with it.

    See `open_measure` for what it needs and refuses.
    """
    measure = open_measure(model, labels, spec)
    in_float = measure(model)

    def judge(candidate: onnx.ModelProto) -> Mapping[str, float]:
        return {head: _drop(in_float[head], found) for head, found in measure(candidate).items()}

    return judge


def open_measure(
    model: onnx.ModelProto, labels: str, spec: InputSpec
) -> Callable[[onnx.ModelProto], dict[str, dict[str, Any]]]:
    """Returns what measures each head's metric of a network, as {"metric": …, "value": …}.

    Args:
        model: the float network, with its heads in the metadata.
        labels: one of `FORMS`.
        spec: how pixels become the network's input.

    Raises:
        InputError: the labels are of no known form or not readable, or the network does not say
            what its heads are.
    """
    text = read_metadata(model).get(HEADS_KEY)
    if text is None:
        raise InputError(
            "the network does not say what its heads are, so no metric fits its outputs",
            "a network exported from a framefit checkpoint",
            "leave --labels out: of outputs without a head SQNR and agreement are judged",
        )
    shapes = [tensor.shape for tensor in input_tensors(model).values()]
    height, width = shapes[0][2:]
    scenes, labelled = _open_scenes(labels, height, width)
    heads = {name: head for name, head in json.loads(text).items() if name in labelled}

    def measure(network: onnx.ModelProto) -> dict[str, dict[str, Any]]:
        run = open_runner(network)
        name = network.graph.input[0].name
        return evaluate_outputs(lambda picture: run({name: picture}), scenes, spec, heads)

    return measure


def _drop(reference: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    loss = float(reference["value"]) - float(found["value"])
    return -loss if reference["metric"] in LOWER_IS_BETTER else loss


def _open_scenes(
    labels: str, height: int, width: int
) -> tuple[SceneDataset | ResizedScenes, tuple[str, ...]]:
    """Returns labelled scenes of the network's input size, and the heads that have labels."""
    kind, *places = labels.split(":")
    if kind == "scenes" and len(places) <= 1 and (not places or places[0].isdigit()):
        count = int(places[0]) if places else SCENES
        if count > 0:
            scenes = SceneDataset(count, HELD_OUT_SEED, height, width)
            return scenes, ("detection", "segmentation", "depth")
    if len(places) == 2 and (kind == "coco" or kind in MASK_FORMATS):
        pictures, second = map(Path, places)
        if kind == "coco":
            found: CocoDataset | MaskFolderDataset = CocoDataset(pictures, second)
        else:
            found = MaskFolderDataset(pictures, second, MASK_FORMATS[kind])
        resized = ResizedScenes(found, tuple(range(len(found))), height, width)
        return resized, ("detection",) if kind == "coco" else ("segmentation",)
    raise InputError(f"--labels is '{labels}'", FORMS)
