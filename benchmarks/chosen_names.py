"""Names on the command line of what a benchmark measures, all by default."""

import argparse
from collections.abc import Collection


def add_names(parser: argparse.ArgumentParser, known: Collection[str], others: str) -> None:
    """Adds the names to measure; `others` says what becomes of the rest."""
    parser.add_argument("names", nargs="*", help=f"of {', '.join(known)}; {others}")


def parse_names(parser: argparse.ArgumentParser, known: Collection[str]) -> argparse.Namespace:
    """Returns the arguments; ends where a name is unknown."""
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(known))
    if unknown:
        parser.error(f"there is no network '{unknown[0]}': {', '.join(known)}")
    return arguments
