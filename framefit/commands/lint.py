"""`framefit export lint`: what a runtime will refuse or run slowly, before any GPU is needed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framefit.commands.options import InputShapeOption, JsonOption, VerboseOption

if TYPE_CHECKING:
    from export.lint import Finding, LintReport

SHOWN_INFOS = 5


def lint(
    model: Annotated[Path, typer.Argument(help="The .onnx file, float or with Q/DQ.")],
    target: Annotated[
        str,
        typer.Option(help="tensorrt-10, tensorrt-11, tensorrt-rtx, openvino or onnxruntime."),
    ] = "tensorrt-11",
    input_shape: InputShapeOption = None,
    json_file: JsonOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Say what TensorRT (or another runtime) will refuse, misread or run slowly, and the fix.

    Needs no GPU and no TensorRT. Exit code 1 where something was found that does not build
    (error) or computes something else (wrong); 0 otherwise.
    """
    from artifacts.atomic import write_json
    from artifacts.onnx_file import parse_input_shapes
    from export.lint import lint_file

    report = lint_file(
        model, target=target, input_shapes=parse_input_shapes(tuple(input_shape or ()))
    )
    if json_file is not None:
        write_json(json_file, {"model": str(model), **report.to_dict()})
    show_report(report, model, is_verbose=verbose)
    if not report.is_passed:
        raise typer.Exit(1)


def show_report(report: "LintReport", model: Path, *, is_verbose: bool) -> None:
    """Prints the findings, the gravest first, and a summary; few infos unless asked for."""
    infos = 0
    for finding in report.findings:
        infos += finding.severity == "info"
        if is_verbose or finding.severity != "info" or infos <= SHOWN_INFOS:
            _show_finding(finding)
    if infos > SHOWN_INFOS and not is_verbose:
        typer.echo(f"{infos - SHOWN_INFOS} more infos; --verbose shows them\n")
    if report.unchecked:
        typer.echo(f"not checked: {report.unchecked}")
    counts = ", ".join(f"{count} {severity}" for severity, count in report.counts.items())
    typer.echo(
        f"{model}: {_verdict(report)}; {counts}; extra memory traffic about "
        f"{report.traffic_bytes / 1e6:.2f} MB per inference"
    )


def _verdict(report: "LintReport") -> str:
    if not report.is_buildable:
        return f"does not build on {report.target}"
    if report.target.startswith("tensorrt"):
        return f"builds on {report.target}"
    return f"nothing found that {report.target} refuses"


def _show_finding(finding: "Finding") -> None:
    traffic = f" (about {finding.traffic_bytes / 1e3:.0f} kB)" if finding.traffic_bytes else ""
    typer.echo(f"{finding.severity}: {finding.place}: {finding.what}{traffic} [{finding.rule}]")
    typer.echo(f"    why: {finding.why}")
    typer.echo(f"    fix: {finding.fix}")
