"""`compress distill`: a student learns to answer as its teacher does."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framefit.commands.options import (
    ColorOption,
    FactoryOption,
    InputShapeOption,
    JsonOption,
    MeanOption,
    PixelScaleOption,
    ResizeOption,
    SequenceOption,
    StateOption,
    StdOption,
    model_options,
    spec_values,
)
from framefit.commands.training_options import (
    AccumulateOption,
    AnnotationsOption,
    BatchSizeOption,
    CompileOption,
    LabelsOption,
    LearningRateOption,
    LogOption,
    MaskFormatOption,
    MasksOption,
    PatienceOption,
    PrecisionOption,
    ProbeEveryOption,
    RecomputeOption,
    SeedOption,
    StepsOption,
    StrategyOption,
    ThreadsOption,
    TrainingDataOption,
    WorkersOption,
    read_training,
)
from framefit.commands.training_result import describe_run, print_losses, show_once

if TYPE_CHECKING:
    from framefit.distill_job import DistillOutcome


def distill(
    student: Annotated[
        Path, typer.Argument(help="The network that learns: .pt, or plain weights (--factory).")
    ],
    teacher: Annotated[Path, typer.Option(help="The network it learns from: .pt.")],
    data: TrainingDataOption,
    out: Annotated[
        Path | None,
        typer.Option(help="The checkpoint to write (default: STUDENT.distilled.pt, here)."),
    ] = None,
    steps: StepsOption = 500,
    batch_size: BatchSizeOption = 8,
    learning_rate: LearningRateOption = None,
    temperature: Annotated[
        float, typer.Option(help="Divides the logits before they are compared.")
    ] = 2.0,
    batch_norm: Annotated[
        str,
        typer.Option(
            help="What BatchNorms compute with while training: hold (the statistics that they have "
            "stored), train (those of batches), or auto (hold where they have any)."
        ),
    ] = "auto",
    feature: Annotated[
        list[str] | None,
        typer.Option(
            help="A module whose output is copied, or STUDENT=TEACHER where the names differ; "
            "repeatable (default: chosen, the last common one at each resolution)."
        ),
    ] = None,
    feature_weight: Annotated[
        float, typer.Option(help="Weight of the features beside that of one head; 0 copies none.")
    ] = 0.5,
    labels: LabelsOption = False,
    annotations: AnnotationsOption = None,
    masks: MasksOption = None,
    mask_format: MaskFormatOption = "cityscapes",
    probe_every: ProbeEveryOption = 50,
    patience: PatienceOption = 0,
    accumulate: AccumulateOption = 1,
    precision: PrecisionOption = "float32",
    compiled: CompileOption = False,
    recompute: RecomputeOption = False,
    strategy: StrategyOption = "ddp",
    seed: SeedOption = 0,
    workers: WorkersOption = 0,
    threads: ThreadsOption = 0,
    log: LogOption = None,
    color: ColorOption = None,
    pixel_scale: PixelScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    resize: ResizeOption = None,
    state: StateOption = None,
    sequence_frames: SequenceOption = None,
    input_shape: InputShapeOption = None,
    factory: FactoryOption = None,
    teacher_factory: Annotated[
        str | None, typer.Option(help="Builds the teacher, where --factory does not.")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Let a student learn to answer as its teacher does; labels are not needed.

    A run that was interrupted goes on from OUT with the suffix .state. The network with the best
    probe is kept, at worst the one that came. Several processes: torchrun --nproc-per-node 2 -m
    framefit compress distill ...
    """
    from compress.distill.settings import DistillSettings
    from framefit.distill_job import distill_file
    from framefit.progress import show_progress
    from framefit.training_samples import LabelOptions

    training = read_training(
        json_file,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        probe_every=probe_every,
        patience=patience,
        accumulate=accumulate,
        precision=precision,
        is_compiled=compiled,
        recomputes_activations=recompute,
        strategy=strategy,
        seed=seed,
        workers=workers,
        threads=threads,
    )
    with show_progress() as progress:
        outcome = distill_file(
            student,
            teacher,
            data,
            DistillSettings(
                temperature=temperature,
                batch_norm=batch_norm,
                feature_weight=feature_weight,
                features=tuple(feature or ()),
            ),
            training,
            out=out,
            labels=LabelOptions(
                is_used=labels, annotations=annotations, masks=masks, mask_format=mask_format
            ),
            log=log,
            model_options=model_options(input_shape, factory, state, sequence_frames),
            teacher_factory=teacher_factory,
            spec_options=spec_values(color, pixel_scale, mean, std, resize),
            progress=progress,
        )
    show_once(outcome, json_file, _show)


def _show(outcome: "DistillOutcome") -> None:
    from framefit.table import print_table

    result = outcome.result
    for name, reason in {**result.match.student_only, **result.match.teacher_only}.items():
        typer.echo(f"not compared: output '{name}': {reason}", err=True)
    print_losses("loss against the teacher", result)
    if outcome.heads:
        print_table(
            ("head", "figure", "teacher", "before", "after"),
            (
                (
                    name,
                    values["metric"],
                    "-" if values["teacher"] is None else f"{values['teacher']:.4f}",
                    f"{values['before']:.4f}",
                    f"{values['after']:.4f}",
                )
                for name, values in outcome.heads.items()
            ),
        )
    typer.echo(f"{outcome.out}: {describe_run(result)}")
