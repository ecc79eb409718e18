"""Options that were given and would do nothing: refused, since a wish that is ignored misleads."""

from collections.abc import Sequence

import typer

from artifacts.errors import InputError


def refuse_unused(context: typer.Context, names: Sequence[str], reason: str) -> None:
    """Refuses options of the command line that this use of the command does not read.

    Args:
        context: of the command that runs.
        names: of the parameters that it does not read.
        reason: why not, as the end of a sentence.

    Raises:
        InputError: one of them was given.
    """
    given = [
        max(option.opts, key=len)
        for option in context.command.params
        if option.name in names and _was_given(context, str(option.name))
    ]
    if given:
        raise InputError(f"{', '.join(given)} would do nothing: {reason}", "the command without")


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
