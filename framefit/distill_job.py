"""The work of `compress distill`: student and teacher in, a better student out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import require_another_file, require_writable
from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.module_names import require_modules
from framefit.labelled_heads import label_heads, measure_heads, read_label_loss
from framefit.model_source import ModelOptions
from framefit.trainable_network import note_frozen, open_trainable, save_trained
from framefit.training_samples import LabelOptions, TrainingSamples
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from torch import nn

    from compress.distill.api import DistillResult
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
            **result.to_dict(),
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
    from artifacts.checkpoint import require_checkpoint_name
    from compress.distill.taps import split_names
    from compress.train.launch import is_first_process

    options = model_options or ModelOptions()
    out = require_writable(out or Path(f"{student.stem}.distilled.pt"))
    require_checkpoint_name(out)
    require_another_file(out, {"the student": student, "the teacher": teacher})
    opened = open_trainable(student, options, spec_options or {}, data)
    learner, spec = opened.module, opened.spec
    note_frozen(learner)
    other = replace(
        options, factory=teacher_factory or options.factory, twin_shapes=opened.own_shapes
    )
    guide = open_trainable(teacher, other, spec_options or {}, data)
    if guide.spec != spec:
        raise InputError(
            f"the teacher's input spec is {guide.spec.to_json()}",
            f"the student's, {spec.to_json()}",
        )
    if list(guide.shapes) != list(opened.shapes):
        raise InputError(
            f"the teacher's inputs are {', '.join(guide.shapes)}",
            f"the student's, in their order: {', '.join(opened.shapes)}",
        )
    for mine, theirs in split_names(settings.features):
        require_modules(learner, (mine,), "student")
        require_modules(guide.module, (theirs,), "teacher")
    heads = label_heads(learner)
    samples = opened.open_samples(data, labels, heads, guide.module)
    before = measure_heads(learner, samples, spec)
    result = train_student(
        learner,
        guide.module,
        samples,
        settings,
        training,
        heads=heads,
        out=out,
        log=log,
        progress=progress,
    )
    if is_first_process():
        save_trained(student, opened, out)
        Workspace().record_artifact(out, "checkpoint", "compress distill")
    teachers = measure_heads(guide.module, samples, spec)
    after = measure_heads(learner, samples, spec)
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


def train_student(
    student: "nn.Module",
    teacher: "nn.Module",
    samples: TrainingSamples,
    settings: "DistillSettings",
    training: "TrainerSettings",
    *,
    heads: Mapping[str, Any],
    out: Path,
    log: Path | None = None,
    progress: Progress | None = None,
) -> "DistillResult":
    """Lets a student learn from its teacher, and from the labels of the samples where they exist.

    Args:
        student: changed in place.
        teacher: left as it is.
        samples: to learn from, and held out.
        settings: what is copied.
        training: how it is trained; the samples say whether they are mirrored.
        heads: of the student, see `label_heads`.
        out: the file that will be written: the state to resume from is beside it, with `.state`.
        log: folder for TensorBoard.
        progress: told (what, done, total).
    """
    from compress.distill.api import distill_module
    from compress.train.loss_log import log_losses

    with log_losses(log) as report:
        return distill_module(
            student,
            teacher,
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
