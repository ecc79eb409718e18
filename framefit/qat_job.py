"""The work of `compress qat`: a quantized network learns to answer as its float one does."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from artifacts.atomic import require_another_file, require_writable
from artifacts.decision_ends import end_before_decisions
from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from artifacts.onnx_file import save_onnx
from artifacts.onnx_inputs import input_tensors
from artifacts.onnx_metadata import (
    INPUT_SPEC_KEY,
    PARENT_KEY,
    SETTINGS_KEY,
    VERSIONS_KEY,
    read_metadata,
)
from artifacts.wording import name_some
from framefit.foreign_pixels import measure_first_layers, warn_of_foreign_training_pixels
from framefit.frame_states import FrameStates
from framefit.labelled_heads import open_label_heads, read_label_loss
from framefit.model_source import ModelOptions, OpenedModel, open_model
from framefit.spec_choice import choose_spec, count_channels
from framefit.training_samples import (
    LabelOptions,
    TrainingSamples,
    name_inputs,
    open_training_samples,
)
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from compress.qat.api import QatResult
    from compress.qat.settings import QatSettings
    from compress.train.settings import TrainerSettings

Progress = Callable[[str, int, int], None]
_TOOLS = ("framefit", "onnx", "onnxruntime", "numpy", "torch")
_MOST_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class QatOutcome:
    """What `qat_file` made.

    Attributes:
        out: the file.
        source: the quantized network it started from.
        teacher: the float network.
        result: how it came about.
    """

    out: Path
    source: Path
    teacher: Path
    result: "QatResult"

    def to_dict(self) -> dict[str, Any]:
        """Returns the outcome for `--json`."""
        return {
            "model": str(self.source),
            "teacher": str(self.teacher),
            "out": str(self.out),
            "sha256": sha256_file(self.out) if self.out.exists() else None,
            **self.result.training.to_dict(),
        }


def qat_file(
    model: Path,
    teacher: Path,
    data: str,
    settings: "QatSettings",
    training: "TrainerSettings",
    *,
    out: Path | None = None,
    labels: LabelOptions | None = None,
    log: Path | None = None,
    model_options: ModelOptions | None = None,
    spec_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> QatOutcome:
    """Trains a quantized network's file and writes it with its new integers and scales.

    Args:
        model: what `compress quantize` wrote, or another tool's Q/DQ file.
        teacher: the float network it was made from, any kind of file.
        data: see `open_training_samples`.
        settings: what is learned.
        training: how.
        out: the file to write; None for the model's name with `.qat.onnx`, here.
        labels: see `open_training_samples`; the teacher is then a network of perception.
        log: folder for TensorBoard.
        model_options: how to open the teacher.
        spec_options: input spec values given by the user, see `choose_spec`.
        progress: told (what, done, total).

    Raises:
        InputError: a file, the data or an option is not usable, or training diverged.
    """
    from compress.qat.api import train_quantized
    from compress.train.launch import is_first_process
    from compress.train.loss_log import log_losses

    out = require_writable(out or Path(f"{model.stem}.qat.onnx"))
    if out.suffix != ".onnx":
        raise InputError(f"--out is {out}", "a file name that ends in .onnx")
    require_another_file(out, {"the quantized network": model, "the teacher": teacher})
    is_labelled = labels is not None and labels.is_given
    options = replace(model_options or ModelOptions(), data=data)
    quantized, guide = _open_pair(model, teacher, options, needs_decisions=is_labelled)
    spec, warning = choose_spec(
        quantized.spec or guide.spec,
        Workspace().read_settings().input,
        spec_options or {},
        channels=count_channels(
            {name: tensor.shape for name, tensor in input_tensors(quantized.model).items()}
        ),
    )
    heads = open_label_heads(teacher) if is_labelled else {}
    states = _read_states(guide, model_options)
    samples = _open_samples(data, quantized, spec, labels, heads, states)
    _warn_of_foreign_pixels(samples, guide, data, None if warning else spec)
    with log_losses(log) as report:
        result = train_quantized(
            quantized.model,
            guide.model,
            samples.training,
            samples.held_out,
            settings,
            replace(training, flip_probability=samples.flip_probability),
            inputs=samples.inputs,
            label_loss=read_label_loss(heads, samples),
            state_path=out.with_suffix(".state"),
            progress=progress,
            report=report,
        )
    if is_first_process():
        metadata = _describe(quantized, settings, training)
        if not warning:
            metadata[INPUT_SPEC_KEY] = spec.to_json()
        save_onnx(quantized.finish(result.model), out, metadata=metadata)
        Workspace().record_artifact(out, "int8-onnx", "compress qat")
    return QatOutcome(out=out, source=model, teacher=teacher, result=result)


def _open_pair(
    model: Path, teacher: Path, options: ModelOptions, *, needs_decisions: bool
) -> tuple[OpenedModel, OpenedModel]:
    """Opens a quantized network and the float one that it learns from.

    Args:
        model: the quantized network's file.
        teacher: the float one's.
        options: how to open the teacher.
        needs_decisions: trains what comes after a decision too, for labels of it.

    Raises:
        InputError: a file is not of its kind, cannot be trained, or the two do not fit together.
    """
    if model.suffix.lower() != ".onnx":
        raise InputError(
            f"{model} is no quantized network",
            "a Q/DQ .onnx file",
            f"make one first: compress quantize {model} --data ...",
        )
    quantized = open_model(model)
    guide = open_model(teacher, replace(options, twin_shapes=quantized.sample_shapes))
    _require_float(guide)
    ends = quantized.model, guide.model
    if not needs_decisions:
        ends = end_before_decisions(*ends)
    for opened, end in zip((quantized, guide), ends, strict=True):
        _require_trainable(opened.path, end)
    _require_same_inputs(quantized, guide)
    return quantized, guide


def _open_samples(
    data: str,
    quantized: OpenedModel,
    spec: InputSpec,
    labels: LabelOptions | None,
    heads: Mapping[str, Any],
    states: FrameStates | None,
) -> TrainingSamples:
    tensors = input_tensors(quantized.model)
    shapes = name_inputs({name: tensor.shape for name, tensor in tensors.items()})
    return open_training_samples(
        data,
        shapes,
        spec,
        labels=labels,
        heads=heads,
        tensors=dict(zip(shapes, tensors.values(), strict=True)),
        states=states,
    )


def _warn_of_foreign_pixels(
    samples: TrainingSamples, guide: OpenedModel, data: str, spec: InputSpec | None
) -> None:
    names = dict(zip(samples.inputs, input_tensors(guide.model), strict=True))

    def measure(name: str, sample: Mapping[str, Any]) -> dict[str, float]:
        named = {names[key]: value for key, value in sample.items()}
        return measure_first_layers(guide.model, names[name], named)

    warn_of_foreign_training_pixels(samples, data, spec, measure)


def _read_states(teacher: OpenedModel, options: ModelOptions | None) -> FrameStates | None:
    """Returns what gives frames the teacher's states; None where it has none."""
    recurrence = options.recurrence if options is not None else None
    return FrameStates(teacher.model, recurrence) if recurrence is not None else None


def _require_same_inputs(quantized: OpenedModel, teacher: OpenedModel) -> None:
    """Refuses a teacher that does not take what the quantized network takes."""
    wanted, got = (
        [(name, list(tensor.shape)) for name, tensor in input_tensors(opened.model).items()]
        for opened in (quantized, teacher)
    )
    if [shape for _, shape in wanted] != [shape for _, shape in got]:
        taken, expected = (
            ", ".join(f"{name}{shape}" for name, shape in inputs) for inputs in (got, wanted)
        )
        raise InputError(
            f"the teacher {teacher.path} takes {taken}",
            f"{expected} as {quantized.path}",
            "give the float network that was quantized",
        )


def _require_float(teacher: OpenedModel) -> None:
    """Refuses a teacher that is quantized itself."""
    from compress.qat.quantized_module import QuantizedModule

    if any(node.op_type in QuantizedModule.own_operators for node in teacher.model.graph.node):
        raise InputError(
            f"the teacher {teacher.path} is quantized itself",
            "the float network that the quantized one was made from",
        )


def _require_trainable(path: Path, model: onnx.ModelProto) -> None:
    """Refuses a network with operators that have no counterpart in torch.

    Args:
        path: its file.
        model: the part of it that is trained.

    Raises:
        InputError: it has one; the first nodes are named.
    """
    from compress.qat.operators import OPERATORS
    from compress.qat.quantized_module import QuantizedModule

    known = OPERATORS.keys() | QuantizedModule.own_operators
    nodes = {node.op_type: node for node in reversed(model.graph.node)}
    unknown = sorted(nodes.keys() - known)
    if not unknown:
        return
    shown = [f"{kind} (node '{nodes[kind].name or nodes[kind].output[0]}')" for kind in unknown]
    raise InputError(
        f"{path} has operators that qat cannot train: {name_some(shown, _MOST_SHOWN)}",
        f"operators with gradients, {len(known)} of ONNX's",
        "leave what stands there to code behind the network, or go without QAT: compress quantize "
        "--prefer quality keeps the costliest layers in float",
    )


def _describe(
    quantized: OpenedModel, settings: "QatSettings", training: "TrainerSettings"
) -> dict[str, str]:
    """Returns the metadata of the trained network: those it came with, and how it was trained."""
    metadata = read_metadata(quantized.model)
    stated = json.loads(metadata.get(SETTINGS_KEY, "{}"))
    stated |= {"qat": asdict(settings), "training": asdict(training)}
    return metadata | {
        SETTINGS_KEY: json.dumps(stated),
        VERSIONS_KEY: json.dumps({name: version(name) for name in _TOOLS}),
        PARENT_KEY: quantized.sha256,
    }
