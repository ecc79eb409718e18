"""`framefit train`: trains the multi-head network on procedural road scenes."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from perception.train import TrainStep

REPORT_EVERY = 20


def train(
    out: Annotated[Path, typer.Option(help="The checkpoint to write.")] = Path("out/road.pt"),
    minutes: Annotated[float, typer.Option(help="Minutes to train for.")] = 50.0,
    steps: Annotated[
        int | None, typer.Option(help="Steps to train for, instead of --minutes (repeatable).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the weights and of the training scenes.")] = 1,
    scenes: Annotated[int, typer.Option(help="Different training scenes.")] = 100_000,
    backbone: Annotated[
        str, typer.Option(help="Any timm backbone that supports features_only.")
    ] = "resnet18",
    head: Annotated[
        list[str] | None,
        typer.Option(help="A head to train: detection, segmentation or depth; all by default."),
    ] = None,
    height: Annotated[int, typer.Option(help="Height of the input, pixels.")] = 352,
    width: Annotated[int, typer.Option(help="Width of the input, pixels.")] = 640,
    batch_size: Annotated[int, typer.Option(help="Scenes per step at half resolution.")] = 8,
    learning_rate: Annotated[float, typer.Option(help="The highest learning rate.")] = 2e-3,
    threads: Annotated[int, typer.Option(help="Threads of the training.")] = 2,
    evaluate: Annotated[
        int, typer.Option(help="Held-out scenes for the figures at the end; 0 leaves them out.")
    ] = 300,
) -> None:
    """Train a multi-head network and print its quality on held-out scenes.

    A run that was interrupted continues from OUT.state beside the checkpoint.
    """
    from perception.train import TrainSettings
    from perception.train_road import evaluate_road, train_road

    settings = TrainSettings(
        minutes=minutes,
        steps=steps,
        seed=seed,
        batch_size=batch_size,
        learning_rate=learning_rate,
        threads=threads,
    )
    config: dict[str, object] = {"backbone": backbone, "height": height, "width": width}
    if head:
        config["heads"] = {name: {} for name in head}
    state = train_road(out, config, settings, scenes=scenes, report=_print_step)
    if evaluate:
        for name, figures in evaluate_road(state.average, count=evaluate).items():
            values = "  ".join(f"{key} {value:.4f}" for key, value in figures.items())
            typer.echo(f"{name:13} {values}")


def _print_step(step: "TrainStep") -> None:
    if step.step % REPORT_EVERY:
        return
    losses = "  ".join(f"{name} {value:.3f}" for name, value in step.losses.items())
    sys.stderr.write(
        f"{step.share:6.1%}  step {step.step}  {step.elapsed_s / 60:.1f} min  "
        f"scale {step.scale}  {losses}\n"
    )
    sys.stderr.flush()
