"""`compress compare`: how far a network's outputs are from another's."""

from pathlib import Path
from typing import Annotated

import typer

from framefit.commands.options import (
    ColorOption,
    ComparedDataOption,
    FactoryOption,
    InputShapeOption,
    JsonOption,
    MeanOption,
    PixelScaleOption,
    ResizeOption,
    SamplesOption,
    SequenceOption,
    StateOption,
    StdOption,
    TrustOption,
    model_options,
    spec_values,
)


def compare(
    reference: Annotated[Path, typer.Argument(help="The network that is right by definition.")],
    candidate: Annotated[Path, typer.Argument(help="The network to judge, such as the INT8 one.")],
    data: ComparedDataOption,
    samples: SamplesOption = 100,
    state: StateOption = None,
    sequence_frames: SequenceOption = None,
    color: ColorOption = None,
    pixel_scale: PixelScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    resize: ResizeOption = None,
    input_shape: InputShapeOption = None,
    factory: FactoryOption = None,
    trust: TrustOption = False,
    json_file: JsonOption = None,
) -> None:
    """Compare two networks on the same samples, per output: SQNR, largest error, agreement.

    Agreement is the share of positions where both decide for the same class. With --state the
    figures are those of single frames that begin with the reference's states; "own states" is the
    SQNR of whole sequences in which each network reads its own, "last quarter" that of their end.
    """
    from artifacts.atomic import require_writable, write_json
    from compress.constant_outputs import format_sqnr
    from compress.sqnr import format_db
    from framefit.compare_job import compare_files
    from framefit.progress import show_progress
    from framefit.table import print_table

    if json_file is not None:
        require_writable(json_file)
    options = model_options(input_shape, factory, state, sequence_frames, trust=trust)
    with show_progress() as progress:
        outcome = compare_files(
            reference,
            candidate,
            data,
            samples=samples,
            model_options=options,
            spec_options=spec_values(color, pixel_scale, mean, std, resize),
            progress=progress,
        )
    if json_file is not None:
        write_json(json_file, outcome.to_dict())
    own = {"own_states_db": "own states", "own_states_end_db": "last quarter"} if state else {}
    print_table(
        (
            *("output", "head", "SQNR dB", "mean", "worst", "of sample", "largest error"),
            *("agreement", *own.values()),
        ),
        (
            (
                item.name,
                item.head or "-",
                format_sqnr(item.figures),
                format_db(item.figures["sqnr_mean_db"]),
                format_db(item.figures["sqnr_worst_db"]),
                item.worst_sample,
                f"{item.figures['max_abs']:.4g}",
                f"{item.figures['agreement']:.2%}",
                *(format_db(item.figures[key]) for key in own),
            )
            for item in outcome.shown
        ),
    )
    typer.echo(f"{outcome.samples} samples")
