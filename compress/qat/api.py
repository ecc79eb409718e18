"""Trains a quantized network: `train_quantized` is what the command line and users call."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor

from artifacts.decision_ends import end_before_decisions
from artifacts.errors import InputError
from artifacts.onnx_inputs import input_tensors
from compress.distill.api import DistillResult, distill_module, require_inputs
from compress.distill.lesson import IMAGE, LabelLoss
from compress.distill.settings import DistillSettings
from compress.qat.onnx_module import OnnxModule
from compress.qat.quantized_module import QuantizedModule
from compress.qat.settings import AVERAGE_DECAY, LEARNING_RATE, QatSettings
from compress.quantize.graph import Graph
from compress.quantize.simplify import simplify
from compress.train.batches import Sample, stack_samples
from compress.train.run import TrainStep
from compress.train.settings import TrainerSettings
from compress.train.trainer import Progress

NEGLIGIBLE = 1e-6
"""See `DistillSettings`: below the loss of INT8, above the rounding of float sums."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class QatResult:
    """A trained quantized network.

    Attributes:
        model: the Q/DQ graph with learned weights, scales and biases.
        training: how it came about; losses are per output, squared errors in units of the float
            network's variance.
    """

    model: onnx.ModelProto
    training: DistillResult


@torch.inference_mode(mode=False)
@torch.enable_grad()
def train_quantized(
    quantized: onnx.ModelProto,
    teacher: onnx.ModelProto,
    samples: Sequence[Sample],
    held_out: Sequence[Sample],
    settings: QatSettings | None = None,
    training: TrainerSettings | None = None,
    *,
    inputs: Sequence[str] = (IMAGE,),
    label_loss: LabelLoss | None = None,
    state_path: Path | None = None,
    progress: Progress | None = None,
    report: Callable[[TrainStep], None] | None = None,
) -> QatResult:
    """Lets a quantized network learn to answer as its float one does, and from labels if given.

    Without labels, networks that end in decisions (labels, boxes that survived) learn the tensors
    about which they decide.

    Args:
        quantized: Q/DQ graph, of framefit or of another tool; it is not changed.
        teacher: the float graph, with the same outputs.
        samples: those of `inputs`, [C, H, W] say, in each; the rest are labels.
        held_out: others, for the probe.
        settings: what is learned.
        training: how; without a learning rate it takes `LEARNING_RATE`, without a weight decay
            none.
        inputs: names of the graphs' inputs in a sample, in the order of the quantized one.
        label_loss: loss on labels; None learns from the float network alone.
        state_path: see `compress.train.trainer.train`.
        progress: see there.
        report: see there.

    Raises:
        InputError: a graph has an operator that cannot be trained, the graphs have other inputs, a
            sample does not fit them, or what `distill_module` raises.
    """
    settings = settings or QatSettings()
    training = _suit_integers(training or TrainerSettings(average_decay=AVERAGE_DECAY))
    taught, teaching = quantized, teacher
    if label_loss is None:
        teaching, taught = end_before_decisions(teacher, quantized)
    student = QuantizedModule(taught, settings)
    student.recall_weights(layer_weights(teacher))
    guide = OnnxModule(teaching)
    if len(guide.input_names) != len(student.input_names) or (
        guide.input_names != student.input_names and len(inputs) > 1
    ):
        raise InputError(
            f"the teacher's inputs are {', '.join(guide.input_names)}",
            f"the quantized network's, in their order: {', '.join(student.input_names)}",
        )
    if len(samples) > 0 and len(held_out) > 0:
        for sample in (samples[0], held_out[0]):
            _require_fitting(sample, inputs, taught)
        _choose_evaluation([student, guide], samples[0], held_out[0], inputs)
    result = distill_module(
        student,
        guide,
        samples,
        held_out,
        DistillSettings(
            feature_weight=0.0,
            by_output=True,
            label_weight=settings.label_weight,
            negligible=NEGLIGIBLE,
        ),
        training,
        inputs=inputs,
        label_loss=label_loss,
        state_path=state_path,
        progress=progress,
        report=report,
    )
    return QatResult(model=student.write_model(quantized), training=result)


def _suit_integers(training: TrainerSettings) -> TrainerSettings:
    """Returns settings with the rate and the decay of integers where they name none.

    A weight decay would pull every integer towards 0, a large one by more than a whole step.
    """
    rate, decay = training.learning_rate, training.weight_decay
    return replace(
        training,
        learning_rate=LEARNING_RATE if rate is None else rate,
        weight_decay=0.0 if decay is None else decay,
    )


def _require_fitting(sample: Sample, inputs: Sequence[str], model: onnx.ModelProto) -> None:
    """Refuses a sample that a graph cannot take.

    Args:
        sample: arrays by name.
        inputs: names of the graph's inputs in it.
        model: the graph.

    Raises:
        InputError: an input lacks, has another shape, or those of the graph's names are in another
            order than the graph's.
    """
    tensors = input_tensors(model)
    require_inputs(sample, inputs)
    if len(inputs) != len(tensors):
        raise InputError(
            f"{len(inputs)} inputs are named: {', '.join(inputs)}",
            f"one for each input of the network: {', '.join(tensors)}",
            "name what of a sample they are, in their order, with inputs=...",
        )
    if set(inputs) == set(tensors) and list(inputs) != list(tensors):
        raise InputError(
            f"the inputs {', '.join(inputs)} are named in another order than the network's",
            ", ".join(tensors),
        )
    for name, tensor in zip(inputs, tensors.values(), strict=True):
        shape, wanted = tuple(sample[name].shape), tensor.shape[1:]
        if len(shape) != len(wanted) or any(
            size not in (0, got) for got, size in zip(shape, wanted, strict=True)
        ):
            raise InputError(
                f"'{name}' of a sample has the shape {list(shape)}",
                f"{list(wanted)}, without the batch axis",
            )
        if sample[name].dtype == np.float64 and tensor.dtype != "float64":
            raise InputError(f"'{name}' of a sample is float64", tensor.dtype)


def _choose_evaluation(
    modules: Sequence[OnnxModule], first: Sample, second: Sample, inputs: Sequence[str]
) -> None:
    """Lets batches be computed together where two samples say that it is right.

    What is of floating point in the second is mirrored and dimmed, so that two equal pictures
    differ too.
    """
    batch = stack_samples([first, second])
    pairs = [batch[name] for name in inputs]
    for pair in pairs:
        if pair.is_floating_point():
            pair[1] = pair[1].flip(-1) / 2 if pair.ndim > 1 else pair[1] / 2
    if not all([module.allow_batches(*pairs) for module in modules]):
        _log.warning(
            "samples are computed one after the other: in a batch, this network would mix them; "
            "it takes longer, and computes what ships"
        )


def layer_weights(model: onnx.ModelProto) -> dict[str, Tensor]:
    """Returns the weights of the layers by node name, BatchNorm folded."""
    graph = Graph(model)
    simplify(graph)
    return {
        node.name: torch.from_numpy(np.array(graph.weights[node.input[1]]))
        for node in graph.nodes
        if len(node.input) > 1 and node.input[1] in graph.weights
    }
