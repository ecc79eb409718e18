"""Readers for labelled pictures."""
