"""A command group whose commands are imported when they are run, not when they are listed."""

import importlib
from dataclasses import dataclass
from typing import Any, cast

import typer
from typer.core import TyperGroup

_UsageError: Any = typer.BadParameter.__mro__[1]
"""Typer brings its own copy of click, and does not name this class."""


@dataclass(frozen=True)
class Row:
    """One command of a group.

    Attributes:
        help: one line for the group's `--help`.
        target: "module:name" of a function or a Typer app; empty for `group`.
        group: rows of a group that is drawn here itself.
    """

    help: str
    target: str = ""
    group: "dict[str, Row] | None" = None


class LazyGroup(TyperGroup):
    """Lists its rows without importing anything.

    Attributes:
        rows: its commands by name, in the order of `--help`.
    """

    rows: dict[str, Row]

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names of the commands."""
        return list(self.rows)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Imports a command; None if there is none of that name."""
        row = self.rows.get(cmd_name)
        return build_command(cmd_name, row) if row else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command; where there is none of that name, says which group has one.

        Groups that are drawn elsewhere are not imported for that, but for one that was joined with
        its command by a dash, as `budget-check` is.
        """
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            places = [
                f"'{ctx.command_path} {name} {args[0]}'"
                for name, row in self.rows.items()
                if args[0] in (row.group or {})
            ]
            group, _, command = args[0].partition("-")
            inner = self.get_command(ctx, group)
            if isinstance(inner, TyperGroup) and command in inner.list_commands(ctx):
                places.append(f"'{ctx.command_path} {group} {command}'")
            if places:
                error.message = f"{error.message.rstrip('.')}; there is {' and '.join(places)}"
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list of commands of `--help`."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.help) for name, row in self.rows.items()])


def build_command(name: str, row: Row) -> Any:
    """Returns the click command of a row."""
    if row.group is not None:
        return build_group(name, row.help, row.group)
    module_name, _, attribute = row.target.partition(":")
    found = getattr(importlib.import_module(module_name), attribute)
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = None
        group = typer.main.get_group(found)
        group.name = name
        return group
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name=name)(found)
    return typer.main.get_command(app)


def build_group(name: str, text: str, rows: dict[str, Row]) -> LazyGroup:
    """Returns a group of rows; alone it shows its help."""
    app = typer.Typer(
        name=name, cls=LazyGroup, help=text, add_completion=False, rich_markup_mode=None
    )
    app.callback(invoke_without_command=True)(_show_help)
    group = cast(LazyGroup, typer.main.get_command(app))
    group.rows = rows
    return group


def _show_help(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    del debug
    if version:
        from importlib.metadata import version as find_version

        typer.echo(f"framefit {find_version('framefit')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
