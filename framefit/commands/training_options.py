"""Options of the commands that train."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from compress.train.settings import TrainerSettings

TrainingDataOption = Annotated[
    str,
    typer.Option(
        "--data",
        help="What to learn from: a folder of pictures (no labels needed), an .npz, a dataset of "
        "framefit.toml, or 'scenes' for rendered roads. Each tenth picture is held out.",
    ),
]
LabelsOption = Annotated[
    bool, typer.Option("--labels", help="Learn from the labels of rendered scenes too.")
]
AnnotationsOption = Annotated[
    Path | None, typer.Option(help="COCO boxes of the pictures, to learn from too.")
]
MasksOption = Annotated[
    Path | None, typer.Option(help="Folder of masks of the pictures, to learn from too.")
]
MaskFormatOption = Annotated[
    str, typer.Option(help="How masks are named and numbered: cityscapes or camvid.")
]
StepsOption = Annotated[int, typer.Option(min=1, help="Training steps.")]
BatchSizeOption = Annotated[int, typer.Option(min=1, help="Pictures per step.")]
LearningRateOption = Annotated[
    float | None,
    typer.Option(help="The highest learning rate (default: found by a few short trials)."),
]
ProbeEveryOption = Annotated[int, typer.Option(min=1, help="Steps between two quality probes.")]
PatienceOption = Annotated[
    int, typer.Option(min=0, help="End after this many probes without a better one; 0: never.")
]
AccumulateOption = Annotated[
    int, typer.Option(min=1, help="Split each batch into this many parts, to save memory.")
]
PrecisionOption = Annotated[str, typer.Option(help="Computes in float32 or bfloat16 (autocast).")]
CompileOption = Annotated[
    bool, typer.Option("--compile", help="Run the network through torch.compile.")
]
RecomputeOption = Annotated[
    bool, typer.Option("--recompute", help="Checkpoint activations: less memory, more time.")
]
StrategyOption = Annotated[
    str, typer.Option(help="How torchrun's processes share the work: ddp or fsdp.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of the samples' order.")]
WorkersOption = Annotated[
    int, typer.Option(min=0, help="Processes that prepare pictures beside the training.")
]
ThreadsOption = Annotated[
    int, typer.Option(min=0, help="Threads of the training on a CPU; 0 lets torch choose.")
]
LogOption = Annotated[Path | None, typer.Option(help="Folder for TensorBoard's log.")]


def read_training(
    json_file: Path | None, *, probe_every: int, **settings: Any
) -> "TrainerSettings":
    """Turns the options into settings, of which one state is saved per probe.

    Args:
        json_file: where the result shall go; found out before hours of training whether it can.
        probe_every: see `TrainerSettings`.
        **settings: further ones of them.

    Raises:
        MissingExtraError: the packages for training are not installed.
        InputError: a setting, or the file, is not usable.
    """
    from artifacts.atomic import require_writable
    from artifacts.errors import require_package
    from compress.train.settings import TrainerSettings

    require_package("lightning_fabric", "train")
    if json_file is not None:
        require_writable(json_file)
    return TrainerSettings(probe_every=probe_every, save_every=probe_every, **settings)
