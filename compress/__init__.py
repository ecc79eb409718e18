"""Smaller and faster networks, each with its quality beside it."""
