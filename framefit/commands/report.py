"""`budget-check report` and `verify`: what CI does with a report.json."""

from pathlib import Path
from typing import Annotated

import typer

from framefit.commands.options import JsonOption

ReportFile = Annotated[Path, typer.Argument(help="A report.json of budget-check.")]


def report(
    report: ReportFile,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html, .md, .xml and comment.md.")
    ] = None,
    base: Annotated[
        Path | None, typer.Option(help="The base branch's report.json, shown beside it.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="A .jsonl of earlier verdicts; this one is added to it.")
    ] = None,
    label: Annotated[
        str, typer.Option(help="This verdict's name in the history, such as a commit.")
    ] = "",
    options: Annotated[
        Path | None, typer.Option(help="Measured stage options (JSON), for the page's toggles.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Profile this network now, for the page's roofline.")
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Print annotations for GitHub, the worst nine.")
    ] = False,
    step_summary: Annotated[
        Path | None, typer.Option(help="Append to this file ($GITHUB_STEP_SUMMARY).")
    ] = None,
) -> None:
    """Make the reports of a report.json again: with a base, a history, toggles, a roofline.

    Exit codes: 0 whatever the verdict; 2 for bad input.
    """
    from framefit.report_job import ReportOptions, make_reports
    from latency_budget.reports.terminal import headline

    made, annotations = make_reports(
        report,
        ReportOptions(
            out=out,
            base=base,
            history=history,
            label=label,
            options=options,
            model=model,
            step_summary=step_summary,
        ),
    )
    if github:
        for line in annotations:
            typer.echo(line)
    typer.echo(headline(made))
    if out is not None:
        typer.echo(f"wrote {out}", err=True)


def verify(
    report: ReportFile,
    artifact: Annotated[Path, typer.Argument(help="The file that is to ship.")],
    budget: Annotated[
        Path | None,
        typer.Option(help="Also refuse a report that was judged by other limits than this file's."),
    ] = None,
    tier: Annotated[
        str | None, typer.Option(help="With --budget: also refuse other evidence than this tier's.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="With --budget: the driving mode that must have been judged.")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Refuse every artifact but the one that a passing report is about, by its SHA-256.

    Exit codes: 0 it is that file and it passed, 1 refused, 2 bad input.
    """
    from artifacts.atomic import write_json
    from framefit.report_job import verify_artifact

    found = verify_artifact(report, artifact, budget, tier, mode)
    if json_file is not None:
        write_json(json_file, {"accepted": found.is_accepted, "detail": found.detail})
    typer.echo(f"{'accepted' if found.is_accepted else 'refused'}: {found.detail}")
    raise typer.Exit(0 if found.is_accepted else 1)
