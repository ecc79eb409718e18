"""`framefit demo`: the main job on the shipped network, end to end."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for artifacts, pictures and the report.")
    ] = Path("out/demo"),
    frames: Annotated[
        int, typer.Option(help="Frames to measure at 30 Hz, of each variant.", min=1)
    ] = 1000,
    scenes: Annotated[
        int, typer.Option(help="Held-out scenes for the quality of each head.", min=1)
    ] = 200,
) -> None:
    """Quantize the shipped three-head network and check whether it keeps its 33 ms frame.

    Exports it to ONNX, quantizes it with 32 rendered pictures, builds a TensorRT plan, evaluates
    every head in float and INT8, measures whole frames at 30 Hz, then without each head and with a
    backbone per head, and writes report.json, report.md, report.html and annotated pictures. The
    verdict is shown; the exit code is 0 if the demo ran.
    """
    from rich.console import Console

    from framefit.demo import DemoSettings, run_demo
    from framefit.progress import show_progress
    from latency_budget.reports.terminal import print_report

    with show_progress() as progress:
        result = run_demo(out, DemoSettings(frames=frames, held_out_scenes=scenes), progress)
    print_report(result.report, Console())
    typer.echo(f"report: {out / 'report.html'}")
