"""The work of `compress distill`: student and teacher in, a better student out."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import atomic_path, require_writable
from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.file_kind import require_file
from artifacts.input_spec import InputSpec
from artifacts.onnx_file import parse_input_shapes
from framefit.model_source import ModelOptions
from framefit.spec_choice import choose_spec
from framefit.training_samples import LabelOptions, TrainingSamples, open_training_samples
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from torch import Tensor, nn

    from compress.distill.api import DistillResult
    from compress.distill.lesson import LabelLoss
    from compress.distill.settings import DistillSettings
    from compress.train.settings import TrainerSettings

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class DistillOutcome:
    """What `distill_file` made.

    Attributes:
        out: the checkpoint.
        student: the student's file.
        teacher: the teacher's file.
        result: how it came about.
        heads: figure per head of the teacher, and of the student before and after, on held-out
            scenes; empty without labels.
    """

    out: Path
    student: Path
    teacher: Path
    result: "DistillResult"
    heads: dict[str, dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Returns the outcome for `--json`."""
        result = self.result
        return {
            "student": str(self.student),
            "teacher": str(self.teacher),
            "out": str(self.out),
            "sha256": sha256_file(self.out) if self.out.exists() else None,
            "steps": result.steps,
            "best_step": result.best_step,
            "score": {"before": result.score_before, "after": result.score_after},
            "losses": {
                name: {"before": value, "after": result.losses_after[name]}
                for name, value in result.losses_before.items()
            },
            "heads": self.heads,
            "student_only": result.match.student_only,
            "teacher_only": result.match.teacher_only,
            "features": [{"student": tap.student, "teacher": tap.teacher} for tap in result.taps],
        }


def distill_file(
    student: Path,
    teacher: Path,
    data: str,
    settings: "DistillSettings",
    training: "TrainerSettings",
    *,
    out: Path | None = None,
    labels: LabelOptions | None = None,
    log: Path | None = None,
    model_options: ModelOptions | None = None,
    teacher_factory: str | None = None,
    spec_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> DistillOutcome:
    """Distils a student's file and writes it with its new weights.

    Args:
        student: a framefit checkpoint, or plain weights with `--factory`.
        teacher: the same.
        data: see `open_training_samples`.
        settings: what is copied.
        training: how it is trained.
        out: the checkpoint to write; None for the student's name with `.distilled.pt`, here.
            While training, the state to resume from is beside it, with the suffix `.state`.
        labels: see `open_training_samples`.
        log: folder for TensorBoard.
        model_options: how to open the student.
        teacher_factory: builds the teacher of plain weights; None takes the student's.
        spec_options: input spec values given by the user, see `choose_spec`.
        progress: told (what, done, total).

    Raises:
        InputError: a file, the data or an option is not usable, or training diverged.
    """
    from compress.distill.api import distill_module
    from compress.train.launch import is_first_process

    options = model_options or ModelOptions()
    out = require_writable(out or Path(f"{student.stem}.distilled.pt"))
    if out.suffix != ".pt":
        raise InputError(f"--out is {out}", "a file name that ends in .pt")
    learner, shape, spec = open_trainable(student, options, spec_options or {})
    other = replace(options, factory=teacher_factory or options.factory)
    guide, _, guide_spec = open_trainable(teacher, other, spec_options or {})
    if guide_spec != spec:
        raise InputError(
            f"the teacher's input spec is {guide_spec.to_json()}",
            f"the student's, {spec.to_json()}",
        )
    heads = label_heads(learner)
    samples = open_training_samples(
        data, shape, spec, labels=labels, encoders=[head.encoder for head in heads.values()]
    )
    before = measure_heads(learner, samples, spec)
    with ExitStack() as stack:
        report = None
        if log is not None and is_first_process():
            from compress.train.loss_log import LossLog

            report = stack.enter_context(LossLog(log)).write
        result = distill_module(
            learner,
            guide,
            samples.training,
            samples.held_out,
            settings,
            replace(training, flip_probability=0.5 if samples.is_mirrored else 0.0),
            label_loss=read_label_loss(heads, samples),
            state_path=out.with_suffix(".state"),
            progress=progress,
            report=report,
        )
    if is_first_process():
        save_trained(student, learner, out)
        Workspace().record_artifact(out, "checkpoint", "compress distill")
    teachers, after = measure_heads(guide, samples, spec), measure_heads(learner, samples, spec)
    figures = {
        name: {
            "metric": value["metric"],
            "teacher": teachers.get(name, {}).get("value"),
            "before": before[name]["value"],
            "after": value["value"],
        }
        for name, value in after.items()
    }
    return DistillOutcome(out=out, student=student, teacher=teacher, result=result, heads=figures)


def open_trainable(
    path: Path, options: ModelOptions, spec_options: Mapping[str, Any]
) -> tuple["nn.Module", tuple[int, ...], InputSpec]:
    """Opens a network that can be trained.

    Returns:
        the module, the shape of its one input, and its input spec.

    Raises:
        InputError: it is an archive of torch.export, or has several inputs.
    """
    from export.network_file import NetworkOptions, open_network

    path = require_file(path, "a checkpoint (.pt)")
    if path.suffix.lower() in (".onnx", ".pt2"):
        raise InputError(f"{path} cannot be trained", "a checkpoint (.pt, .safetensors)")
    network = NetworkOptions(
        factory=options.factory, input_shapes=parse_input_shapes(options.input_shapes)
    )
    module, shapes, stored = open_network(path, network)
    if len(shapes) != 1:
        raise InputError(f"{path} has {len(shapes)} inputs", "a network with one")
    spec, _ = choose_spec(stored, Workspace().read_settings().input, spec_options)
    return module, next(iter(shapes.values())), spec


def save_trained(source: Path, module: "nn.Module", out: Path) -> None:
    """Writes new weights in the form that the network came in: a checkpoint, or plain weights."""
    import torch

    from artifacts.checkpoint import Checkpoint, load_checkpoint_or_weights, save_checkpoint

    weights = {name: value.detach().cpu() for name, value in module.state_dict().items()}
    content = load_checkpoint_or_weights(source)
    if isinstance(content, Checkpoint):
        save_checkpoint(out, replace(content, state_dict=weights))
        return
    with atomic_path(out) as temporary:
        torch.save(weights, temporary)


def save_edited(
    source: Path,
    module: "nn.Module",
    edits: Sequence[Mapping[str, Any]],
    out: Path,
    factory: str | None,
    spec: InputSpec,
) -> None:
    """Writes a network with structural edits on top of those it came with, as a checkpoint."""
    from artifacts.checkpoint import Checkpoint, load_checkpoint_or_weights, save_checkpoint

    weights = {name: value.detach().cpu() for name, value in module.state_dict().items()}
    content = load_checkpoint_or_weights(source)
    if not isinstance(content, Checkpoint):
        content = Checkpoint(builder=factory or "", config={}, input_spec=spec, state_dict={})
    edited = [*content.edits, *map(dict, edits)]
    save_checkpoint(out, replace(content, state_dict=weights, edits=edited))


def label_heads(module: "nn.Module") -> dict[str, Any]:
    """Returns the heads of a perception network, which know their labels; empty for others."""
    from perception.network import PerceptionNetwork

    return dict(module.heads.items()) if isinstance(module, PerceptionNetwork) else {}


def read_label_loss(heads: Mapping[str, Any], samples: TrainingSamples) -> "LabelLoss | None":
    """Returns the loss on labels of the heads that have some; None without labels."""
    used = {name: head for name, head in heads.items() if name in samples.labelled}
    if not used:
        return None

    def loss(outputs: dict[str, "Tensor"], targets: dict[str, "Tensor"]) -> dict[str, "Tensor"]:
        terms = {}
        for head in used.values():
            terms.update(head.loss(outputs, targets))
        return terms

    return loss


def measure_heads(
    module: "nn.Module", samples: TrainingSamples, spec: InputSpec, count: int = 32
) -> dict[str, dict[str, Any]]:
    """Returns the headline figure per head on held-out scenes; empty without labelled scenes."""
    import torch

    from perception.evaluate import evaluate_outputs
    from perception.network import PerceptionNetwork

    if samples.scenes is None or not isinstance(module, PerceptionNetwork):
        return {}
    network = module.cpu().eval()

    def predict(image: Any) -> dict[str, Any]:
        with torch.inference_mode():
            return {name: value.numpy() for name, value in network(torch.from_numpy(image)).items()}

    scenes = samples.scenes(network.config["height"], network.config["width"])
    chosen = [scenes[index] for index in range(min(len(scenes), count))]
    heads = {
        name: values
        for name, values in network.heads_metadata.items()
        if not samples.labelled or name in samples.labelled
    }
    return evaluate_outputs(predict, chosen, spec, heads)
