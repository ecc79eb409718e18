"""`framefit engines options`: what heads and a shared backbone cost, for the report's toggles."""

from pathlib import Path
from typing import Annotated

import typer

from framefit.commands.options import (
    MORE_TIME,
    InferenceThreadsOption,
    InferenceTimeoutOption,
    InputShapeOption,
    NewestOption,
    RevokedOption,
    TrustedKeyOption,
)


def options(
    models: Annotated[
        list[str], typer.Argument(help="NAME=model.onnx, such as float=a.onnx INT8=b.onnx.")
    ],
    out: Annotated[Path, typer.Option(help="JSON file for budget-check report --options.")],
    runtime: Annotated[
        str | None, typer.Option(help="openvino or onnxruntime; by default the file's own.")
    ] = None,
    threads: InferenceThreadsOption = None,
    runs: Annotated[int, typer.Option(min=1, help="Timed runs of each shape.")] = 300,
    input_shape: InputShapeOption = None,
    timeout: InferenceTimeoutOption = 60.0,
    trusted_key: TrustedKeyOption = None,
    revoked: RevokedOption = None,
    newest: NewestOption = None,
) -> None:
    """Measure a network without each of its heads, and with a backbone of its own for each.

    All shapes of all models are timed in turns; the model that ships is named last.
    """
    from artifacts.atomic import write_json
    from artifacts.errors import InputError
    from framefit.commands.engines import read_settings
    from framefit.hang_watch import HangWatch
    from framefit.options_job import measure_options
    from framefit.progress import show_progress
    from framefit.table import print_table
    from framefit.trusted_models import Trust, open_trusted

    named = {}
    for text in models:
        name, separator, path = text.partition("=")
        if not separator or not name or not path or name in named:
            raise InputError(f"MODELS has '{text}'", "NAME=model.onnx, each name once")
        named[name] = Path(path)
    trust = Trust(keys=trusted_key, revoked=revoked, newest=newest)
    with (
        open_trusted(trust, *named.values()) as opened,
        HangWatch(timeout, MORE_TIME) as watch,
        show_progress() as progress,
    ):
        found = measure_options(
            dict(zip(named, opened, strict=True)),
            read_settings(threads, False, 0, input_shape),
            watch=watch,
            runtime=runtime,
            runs=runs,
            progress=progress,
        )
    write_json(out, [option.to_dict() for option in found])
    print_table(
        ("shape", "P50 ms", "P99 ms", "last / this"),
        (
            (
                ", ".join(f"{key} {value}" for key, value in option.settings.items()),
                f"{option.p50_ms:.2f}",
                "-" if option.p99_ms is None else f"{option.p99_ms:.2f}",
                f"{found[-1].p50_ms / option.p50_ms:.2f}x",
            )
            for option in found
        ),
    )
    typer.echo(f"wrote {out}", err=True)
