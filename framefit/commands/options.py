"""Options that several commands share, each with its help in one place."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framefit.spec_choice import parse_numbers

if TYPE_CHECKING:
    from framefit.model_source import ModelOptions

DataOption = Annotated[
    str,
    typer.Option(
        "--data",
        help="Calibration data: a folder of pictures (of several inputs a sub-folder "
        "for each), an .npz with one array per input (first axis = samples), or a dataset of "
        "framefit.toml.",
    ),
]
ComparedDataOption = Annotated[
    str,
    typer.Option(
        "--data",
        help="What both run on: a folder of pictures (of several inputs a sub-folder "
        "for each), an .npz with one array per input (first axis = samples), or a dataset of "
        "framefit.toml; other samples than calibration had.",
    ),
]
SamplesOption = Annotated[
    int,
    typer.Option(
        "--samples",
        "--limit",
        min=1,
        help="Use at most this many samples, spread over all of them; the same ones each time.",
    ),
]
ModelOrPlanArgument = Annotated[
    Path, typer.Argument(help="An .onnx model, or a .plan with its manifest.")
]
InferenceThreadsOption = Annotated[
    int | None, typer.Option(min=1, help="CPU threads of one inference.")
]
DeviceOption = Annotated[int, typer.Option(min=0, help="Index of the GPU.")]
FramesOption = Annotated[int | None, typer.Option(help="Frames to time, instead of the tier's.")]
KeepFloatOption = Annotated[
    list[str] | None, typer.Option(help="Name of a node that stays in float; repeatable.")
]
ColorOption = Annotated[
    str | None, typer.Option(help="Channel order of the input: rgb (default) or bgr.")
]
PixelScaleOption = Annotated[
    float | None, typer.Option(help="Pixels from 0 to 255 are multiplied by this (default 1/255).")
]
MeanOption = Annotated[
    str | None,
    typer.Option(help="Subtracted from the scaled pixels, one per channel (default 0,0,0)."),
]
StdOption = Annotated[
    str | None, typer.Option(help="Divisors after --mean, one per channel (default 1,1,1).")
]
ResizeOption = Annotated[
    str | None,
    typer.Option(
        help="How pictures get the input's size: stretch (default) or letterbox (aspect kept, grey "
        "borders)."
    ),
]
InputShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Shape of the input, such as 1,3,360,640; NAME=1,3,360,640 where there are several.",
    ),
]
FactoryOption = Annotated[
    str | None,
    typer.Option(
        help="Function that builds the network of plain weights: package.module:function.",
    ),
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Load a .pt2 even where that could run code it contains.")
]
TrustedKeyOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--trusted-key", help="Refuse a file that this public key (PEM) did not sign; repeatable."
    ),
]
RevokedOption = Annotated[
    Path | None,
    typer.Option(
        help="File that lists refused keys and files: one SHA-256 a line, # for comments."
    ),
]
NewestOption = Annotated[
    Path | None,
    typer.Option(help="File that remembers the newest accepted release; older ones are refused."),
]
StateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        help="INPUT=OUTPUT: an input (ConvGRU, LSTM) that an output gives for the next frame; "
        "repeatable. The data are frames in order then, and the float network runs on all of "
        "them for the states. The first state is zeros, or that of the .npz.",
    ),
]
SequenceOption = Annotated[
    int | None,
    typer.Option(
        "--sequence-frames",
        help="With --state: frames after which another sequence begins (default: all are one).",
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        min=1,
        max=1e6,
        help="Seconds that a stage may take for a frame before it counts as hung; ten times as "
        "long for the load and the first ten frames.",
    ),
]
InferenceTimeoutOption = Annotated[
    float,
    typer.Option(
        min=1,
        max=1e6,
        help="Seconds that an inference may take before the runtime counts as hung; ten times as "
        "long to open a network and for its first inferences.",
    ),
]
MORE_TIME = "try another runtime, or give it more time with --timeout"
"""What to do about an inference that took longer."""
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="Write the result as JSON to this file; - for standard output, all text to standard "
        "error then.",
    ),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Say for each layer what was done, or why nothing was.")
]


def spec_values(
    color: str | None,
    pixel_scale: float | None,
    mean: str | None,
    std: str | None,
    resize: str | None,
) -> dict[str, Any]:
    """Returns the input spec's options as `choose_spec` takes them; None where not given."""
    return {
        "color": color,
        "pixel_scale": pixel_scale,
        "mean": parse_numbers(mean, "--mean"),
        "std": parse_numbers(std, "--std"),
        "resize": resize,
    }


def model_options(
    input_shape: list[str] | None,
    factory: str | None,
    state: list[str] | None,
    sequence_frames: int | None,
    *,
    trust: bool = False,
) -> "ModelOptions":
    """Returns how to open a model whose states may be named.

    Raises:
        InputError: the states are not usable, see `Recurrence.parse`.
    """
    from artifacts.recurrence import Recurrence
    from framefit.model_source import ModelOptions

    recurrence = Recurrence.parse(state or (), sequence_frames)
    return ModelOptions(tuple(input_shape or ()), factory, trust, recurrence)
