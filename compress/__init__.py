"""Smaller and faster networks, each with its quality beside it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # A type checker takes no package to be a function.
    from compress.quantize.api import quantize
else:
    from compress import quantize

__all__ = ["quantize"]
