"""Cheaper operators in the place of expensive ones, where a measurement says that it pays."""
