"""Sections of a page that are written by a program, between two comments that name them."""

from collections.abc import Iterable, Sequence


def replace_section(page: str, name: str, lines: list[str]) -> str:
    """Returns the page with the section's lines; a section that it lacks is added at its end."""
    first, last = _marks(name)
    body = "\n".join([first, *lines, last])
    start, end = page.find(first), page.find(last)
    if start < 0 or end < start:
        return page.rstrip("\n") + "\n\n" + body + "\n"
    return page[:start] + body + page[end + len(last) :]


def table_lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns a table in Markdown, from its cells."""
    first, *others = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return [first, "|---" * len(head) + "|", *others]


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
