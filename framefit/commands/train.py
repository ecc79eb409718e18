"""`framefit train`: trains the multi-head network on rendered road scenes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framefit.commands.options import JsonOption
from framefit.commands.training_options import MaskFormatOption

if TYPE_CHECKING:
    from perception.train import TrainStep
    from perception.training_data import TrainingData

REPORT_EVERY = 20


def train(
    out: Annotated[Path, typer.Option(help="The checkpoint to write.")] = Path("out/road.pt"),
    minutes: Annotated[float, typer.Option(help="Minutes to train for.")] = 50.0,
    steps: Annotated[
        int | None,
        typer.Option(help="Steps to train for, instead of --minutes (the same weights each time)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights and the scenes.")] = 1,
    scenes: Annotated[int, typer.Option(min=1, help="Different training scenes.")] = 100_000,
    backbone: Annotated[
        str, typer.Option(help="Any timm backbone that supports features_only.")
    ] = "resnet18",
    head: Annotated[
        list[str] | None,
        typer.Option(help="A head to train: detection, segmentation or depth (default: all)."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(help="A checkpoint of the same network to start from, at any input size."),
    ] = None,
    height: Annotated[int, typer.Option(help="Height of the input, pixels.")] = 320,
    width: Annotated[int, typer.Option(help="Width of the input, pixels.")] = 608,
    batch_size: Annotated[int, typer.Option(help="Scenes per step at half resolution.")] = 8,
    half_share: Annotated[
        float,
        typer.Option(help="Share of the training that runs at half resolution first, 0 to 1."),
    ] = 0.4,
    learning_rate: Annotated[float, typer.Option(help="The highest learning rate.")] = 2e-3,
    replicas: Annotated[
        int, typer.Option(help="Processes that share the training; one per core is best.")
    ] = 2,
    evaluate: Annotated[
        int, typer.Option(min=0, help="Held-out scenes for the figures; 0 measures nothing.")
    ] = 300,
    evaluate_only: Annotated[
        bool, typer.Option("--evaluate-only", help="Measure the checkpoint OUT, do not train.")
    ] = False,
    images: Annotated[
        Path | None, typer.Option(help="Folder of your own pictures, instead of rendered roads.")
    ] = None,
    annotations: Annotated[
        Path | None, typer.Option(help="With --images: their boxes, a COCO annotation file.")
    ] = None,
    masks: Annotated[
        Path | None, typer.Option(help="With --images: their masks (a folder).")
    ] = None,
    mask_format: MaskFormatOption = "cityscapes",
    json_file: JsonOption = None,
) -> None:
    """Train a multi-head network and print its quality on held-out scenes.

    A run that was interrupted continues from OUT with the suffix .state. Of own pictures each
    tenth is held out.
    """
    from artifacts.atomic import require_writable
    from perception.train_checkpoint import train_checkpoint
    from perception.train_settings import TrainSettings
    from perception.training_data import picture_data, road_data

    if json_file is not None:
        require_writable(json_file)
    if images is not None:
        data = picture_data(images, annotations=annotations, masks=masks, mask_format=mask_format)
    else:
        data = road_data(scenes, seed, evaluate)
    if not evaluate_only:
        require_writable(out)
        settings = TrainSettings(
            minutes=minutes,
            steps=steps,
            seed=seed,
            batch_size=batch_size,
            half_share=half_share,
            learning_rate=learning_rate,
            replicas=replicas,
        )
        config: dict[str, object] = {"backbone": backbone, "height": height, "width": width}
        if head:
            config["heads"] = {name: {} for name in head}
        train_checkpoint(out, config, settings, data, start=start, report=_print_step)
    if evaluate:
        _evaluate(out, data, json_file)


def _evaluate(path: Path, data: "TrainingData", json_file: Path | None) -> None:
    from artifacts.atomic import write_json
    from framefit.progress import show_progress
    from framefit.table import print_table
    from perception.train_checkpoint import evaluate_checkpoint

    with show_progress() as progress:
        figures = evaluate_checkpoint(path, data.held_out, progress=progress)
    if json_file is not None:
        write_json(json_file, {"checkpoint": str(path), "heads": figures})
    print_table(
        ("head", "figure", "on held-out scenes"),
        (
            (name, figure, f"{value:.4f}")
            for name, values in figures.items()
            for figure, value in values.items()
        ),
    )


def _print_step(step: "TrainStep") -> None:
    if step.step % REPORT_EVERY:
        return
    losses = "  ".join(f"{name} {value:.3f}" for name, value in step.losses.items())
    typer.echo(
        f"{step.share:6.1%}  step {step.step}  {step.elapsed_s / 60:.1f} min  "
        f"scale {step.scale}  {losses}",
        err=True,
    )
