"""`framefit export lint`: what a runtime will refuse or run slowly, before any GPU is needed."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from artifacts.wording import name_some
from framefit.commands.options import InputShapeOption, JsonOption

if TYPE_CHECKING:
    from export.lint import Finding, LintReport

SHOWN_INFOS = 5
SHOWN_PLACES = 3


def lint(
    model: Annotated[Path, typer.Argument(help="The .onnx file, float or with Q/DQ.")],
    target: Annotated[
        str,
        typer.Option(
            help="tensorrt-10, tensorrt-11 (or tensorrt), tensorrt-rtx, openvino or onnxruntime."
        ),
    ] = "tensorrt-11",
    input_shape: InputShapeOption = None,
    json_file: JsonOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show each finding, also those that are alike.")
    ] = False,
) -> None:
    """Say what TensorRT (or another runtime) will refuse, misread or run slowly, and the fix.

    Needs no GPU and no TensorRT. Exit code 1 where something was found that does not build
    (error) or computes something else (wrong); 0 otherwise.
    """
    from artifacts.atomic import write_json
    from artifacts.onnx_inputs import parse_input_shapes
    from export.lint import lint_file

    report = lint_file(
        model, target=target, input_shapes=parse_input_shapes(tuple(input_shape or ()))
    )
    if json_file is not None:
        write_json(json_file, {"model": str(model), **report.to_dict()})
    show_report(report, model, is_verbose=verbose)
    if not report.is_passed:
        _say_what_for(model, report.target)
        raise typer.Exit(1)


def _say_what_for(model: Path, judged: str) -> None:
    """Tells where a file was quantized for another runtime than the one that it was judged for."""
    from artifacts.onnx_file import read_as_stored
    from artifacts.onnx_metadata import read_target
    from export.lint.target import TARGETS

    meant = read_target(read_as_stored(model))
    if meant in TARGETS and meant != judged:
        typer.echo(
            f"{model} was quantized for {meant}: --target {meant} judges it for that; "
            f"this is what {judged} would say"
        )


def show_report(report: "LintReport", model: Path, *, is_verbose: bool) -> None:
    """Prints the findings, the gravest first, and a summary.

    Those that differ in their nodes only are shown as one, and of the infos a few, unless all are
    asked for.
    """
    groups = [[one] for one in report.findings] if is_verbose else group_alike(report.findings)
    infos = hidden = 0
    for group in groups:
        infos += group[0].severity == "info"
        if is_verbose or group[0].severity != "info" or infos <= SHOWN_INFOS:
            _show_group(group)
        else:
            hidden += len(group)
    if hidden:
        typer.echo(f"{hidden} more infos; --verbose shows them\n")
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


def group_alike(findings: "Iterable[Finding]") -> "list[list[Finding]]":
    """Puts findings of one rule together that differ in quoted names and zero points at most."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for one in findings:
        key = (one.rule, one.severity, *(_mask(text) for text in (one.what, one.why, one.fix)))
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _mask(text: str) -> str:
    return re.sub(r"(?<=a zero point of )\d+", "...", re.sub(r"'[^']*'", "'...'", text))


def _show_group(group: "list[Finding]") -> None:
    first = group[0]
    places = name_some([one.place for one in group], SHOWN_PLACES)
    what, why, fix = (
        text if len({getattr(one, name) for one in group}) == 1 else _mask(text)
        for name, text in (("what", first.what), ("why", first.why), ("fix", first.fix))
    )
    traffic_bytes = sum(one.traffic_bytes for one in group)
    traffic = f" (about {traffic_bytes / 1e3:.0f} kB)" if traffic_bytes else ""
    typer.echo(f"{first.severity}: {places}: {what}{traffic} [{first.rule}]")
    typer.echo(f"    why: {why}")
    typer.echo(f"    fix: {fix}")
