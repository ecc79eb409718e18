"""`compress qat`: trains a quantized network towards its float one."""

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
    LabelsOption,
    LogOption,
    MaskFormatOption,
    MasksOption,
    PatienceOption,
    PrecisionOption,
    ProbeEveryOption,
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
    from framefit.qat_job import QatOutcome


def qat(
    model: Annotated[Path, typer.Argument(help="A quantized network: Q/DQ .onnx.")],
    teacher: Annotated[
        Path, typer.Option(help="The float network it was made from: .onnx, .pt ...")
    ],
    data: TrainingDataOption,
    out: Annotated[
        Path | None, typer.Option(help="The file to write (default: MODEL.qat.onnx, here).")
    ] = None,
    steps: StepsOption = 500,
    batch_size: BatchSizeOption = 8,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="The highest, in steps of the integer grid (default: 0.005)."),
    ] = None,
    fixed_weights: Annotated[
        bool, typer.Option("--fixed-weights", help="Learn scales and biases only.")
    ] = False,
    fixed_activations: Annotated[
        bool, typer.Option("--fixed-activations", help="Keep the scales of activations.")
    ] = False,
    labels: LabelsOption = False,
    annotations: AnnotationsOption = None,
    masks: MasksOption = None,
    mask_format: MaskFormatOption = "cityscapes",
    probe_every: ProbeEveryOption = 50,
    patience: PatienceOption = 0,
    accumulate: AccumulateOption = 1,
    precision: PrecisionOption = "float32",
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
    json_file: JsonOption = None,
) -> None:
    """Train a quantized network: scales, weights and biases, distilled from the float one.

    What is written computes exactly what was trained. No labels are needed; to learn from some
    (--labels, --annotations, --masks), name the checkpoint (.pt) of a network of perception as the
    teacher. A run that was interrupted goes on from OUT with the suffix .state.
    """
    from dataclasses import replace

    from compress.qat.settings import AVERAGE_DECAY, QatSettings
    from framefit.progress import show_progress
    from framefit.qat_job import qat_file
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
        strategy=strategy,
        seed=seed,
        workers=workers,
        threads=threads,
    )
    with show_progress() as progress:
        outcome = qat_file(
            model,
            teacher,
            data,
            QatSettings(learns_weights=not fixed_weights, learns_activations=not fixed_activations),
            replace(training, average_decay=AVERAGE_DECAY),
            out=out,
            labels=LabelOptions(
                is_used=labels, annotations=annotations, masks=masks, mask_format=mask_format
            ),
            log=log,
            model_options=model_options(input_shape, factory, state, sequence_frames),
            spec_options=spec_values(color, pixel_scale, mean, std, resize),
            progress=progress,
        )
    show_once(outcome, json_file, _show)


def _show(outcome: "QatOutcome") -> None:
    training = outcome.result.training
    print_losses("loss against the float network", training)
    typer.echo(f"{outcome.out}: {describe_run(training)}")
