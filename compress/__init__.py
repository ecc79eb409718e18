"""Smaller and faster networks, each with its quality beside it."""

from compress import quantize

__all__ = ["quantize"]
