"""Options of the commands that train."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    *,
    steps: int,
    batch_size: int,
    learning_rate: float | None,
    probe_every: int,
    patience: int,
    accumulate: int = 1,
    precision: str = "float32",
    is_compiled: bool = False,
    recomputes: bool = False,
    strategy: str = "ddp",
    seed: int = 0,
    workers: int = 0,
    threads: int = 0,
) -> "TrainerSettings":
    """Turns the options into settings."""
    from compress.train.settings import TrainerSettings

    return TrainerSettings(
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        probe_every=probe_every,
        save_every=probe_every,
        patience=patience,
        accumulate=accumulate,
        precision=precision,
        is_compiled=is_compiled,
        recomputes_activations=recomputes,
        strategy=strategy,
        seed=seed,
        workers=workers,
        threads=threads,
    )
