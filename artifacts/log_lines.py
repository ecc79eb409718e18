"""Text for logs of CI servers, which take some of its lines for commands to themselves.

GitHub obeys a line that begins with `::name::`, blanks before it or not, and `##[name]` anywhere in
one; Azure Pipelines obeys `##vso[name]`. Names of files, stages and tensors come from others: one
such as `::stop-commands::x` would hide the annotations behind it.
"""

import re

_COMMAND = re.compile(r"^([^\S\n]*):(?=:)|#(?=#\w*\[)", re.MULTILINE)


def defuse(text: str) -> str:
    """Returns a text in which no line is a command: a blank parts its two colons or hashes."""
    return _COMMAND.sub(lambda found: f"{found[0]} ", text)
