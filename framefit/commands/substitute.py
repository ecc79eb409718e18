"""`compress substitute`: cheaper operators where they pay, repaired by distillation."""

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
    BatchSizeOption,
    LabelsOption,
    LearningRateOption,
    PatienceOption,
    ProbeEveryOption,
    SeedOption,
    StepsOption,
    ThreadsOption,
    TrainingDataOption,
    WorkersOption,
    read_training,
)
from framefit.commands.training_result import describe_rate, describe_score, show_once

if TYPE_CHECKING:
    from framefit.substitute_job import SubstituteOutcome


def substitute(
    model: Annotated[Path, typer.Argument(help="The network: .pt, or plain weights (--factory).")],
    data: TrainingDataOption,
    out: Annotated[
        Path | None,
        typer.Option(help="The checkpoint to write (default: MODEL.substituted.pt, here)."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="Operators to try: silu, hard-swish, gelu, prelu or squeeze-excite; repeatable "
            "(default: all there are)."
        ),
    ] = None,
    target: Annotated[
        str, typer.Option(help="Runtime that the time is measured on: openvino or onnxruntime.")
    ] = "openvino",
    in_float: Annotated[
        bool, typer.Option("--float", help="It will run in float; otherwise INT8 is timed.")
    ] = False,
    steps: StepsOption = 500,
    batch_size: BatchSizeOption = 8,
    learning_rate: LearningRateOption = None,
    labels: LabelsOption = False,
    probe_every: ProbeEveryOption = 50,
    patience: PatienceOption = 0,
    seed: SeedOption = 0,
    workers: WorkersOption = 0,
    threads: ThreadsOption = 0,
    color: ColorOption = None,
    pixel_scale: PixelScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    resize: ResizeOption = None,
    state: StateOption = None,
    sequence_frames: SequenceOption = None,
    input_shape: InputShapeOption = None,
    factory: FactoryOption = None,
    json_file: JsonOption = None,
) -> None:
    """Replace SiLU, hard-swish, GELU and PReLU by ReLU and remove squeeze-and-excite, if it pays.

    Each kind is timed on the target, with and without, and kept only if it saves time; then the
    network learns to answer as it did before.
    """
    from compress.distill.settings import DistillSettings
    from framefit.progress import show_progress
    from framefit.substitute_job import substitute_file
    from framefit.training_samples import LabelOptions

    training = read_training(
        json_file,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        probe_every=probe_every,
        patience=patience,
        seed=seed,
        workers=workers,
        threads=threads,
    )
    with show_progress() as progress:
        outcome = substitute_file(
            model,
            data,
            DistillSettings(),
            training,
            kinds=kind,
            runtime=target,
            is_int8=not in_float,
            out=out,
            labels=LabelOptions(is_used=labels),
            model_options=model_options(input_shape, factory, state, sequence_frames),
            spec_options=spec_values(color, pixel_scale, mean, std, resize),
            progress=progress,
        )
    show_once(outcome, json_file, _show)


def _show(outcome: "SubstituteOutcome") -> None:
    from compress.sqnr import format_db
    from compress.substitute.api import AS_MODULES
    from compress.substitute.called import describe_called
    from framefit.table import print_table

    print_table(
        ("operator", "count", "with, ms", "without, ms", ""),
        (
            (
                trial.kind,
                str(trial.count),
                f"{trial.before_ms:.2f}",
                f"{trial.after_ms:.2f}",
                "replaced" if trial.is_kept else "kept: does not pay",
            )
            for trial in outcome.substitution.trials
        ),
    )
    if called := outcome.substitution.called:
        typer.echo(
            f"left as they are, called as functions: {describe_called(called)}; "
            f"to have them tried, {AS_MODULES}"
        )
    if outcome.outputs:
        print_table(
            ("output", "SQNR dB on held-out samples: substituted", "repaired"),
            (
                (name, format_db(values["substituted"]), format_db(values["repaired"]))
                for name, values in outcome.outputs.items()
            ),
        )
    for name, values in outcome.heads.items():
        typer.echo(
            f"{name} {values['metric']}: {values['original']:.4f} originally, "
            f"{values['before']:.4f} substituted, {values['after']:.4f} repaired"
        )
    result = outcome.result
    repaired = (
        f"repaired in {result.steps} steps, {describe_rate(result.rate)}, {describe_score(result)}"
        if result
        else "nothing paid, the network is as it was"
    )
    typer.echo(f"{outcome.out}: {repaired}")
