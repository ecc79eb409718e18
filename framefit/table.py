"""Prints results as a table on stdout."""

from collections.abc import Iterable, Sequence

from artifacts.log_lines import defuse

PIPE_WIDTH = 160


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table: the first column as text, the others as right-aligned figures."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    table = Table(box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    with console.capture() as captured:
        console.print(table)
    console.print(Text.from_ansi(defuse(captured.get().removesuffix("\n"))), soft_wrap=True)
